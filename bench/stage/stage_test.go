package stage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/config"
)

func scenario(t *testing.T, name string) bench.Scenario {
	t.Helper()
	s, err := bench.FindScenario(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConfigurationsAreValid(t *testing.T) {
	for _, s := range bench.Scenarios {
		for _, scope := range Scopes {
			if !Known(scope) {
				continue
			}
			set := setting{
				run: "run", scope: scope, redis: "127.0.0.1:1", provider: "http://127.0.0.1:2", places: s.Places,
				limit: bench.LimitReport{Requests: 100, PerS: 1, Burst: 10}, tenants: s.Plan(10, 4, 100, 1),
				immediate: s.Immediate, onOutage: s.OnOutage, timeout: storeTimeout, slots: s.Slots, ttl: s.LeaseTTL,
			}
			a := address{name: set.replica(0), api: "127.0.0.1:0", admin: "127.0.0.1:0", gossip: "127.0.0.1:3", join: []string{"127.0.0.1:4", "127.0.0.1:5"}}
			cfg, err := config.Parse(set.yaml(4, a), os.LookupEnv)
			if err != nil {
				t.Fatalf("%s, %s: %v", s.Name, scope, err)
			}
			if w := cfg.Warnings(); len(w) > 0 {
				t.Errorf("%s, %s: warnings %v", s.Name, scope, w)
			}
			for i, l := range set.loads() {
				if config.Digest(l.Key) != cfg.Keys[i].Digest || l.Model != set.model() {
					t.Errorf("%s, %s: tenant %d is not the one of the configuration", s.Name, scope, i)
				}
			}
		}
	}
}

func TestScopesThatEveryVersionHas(t *testing.T) {
	for scope, want := range map[string]bool{"fifo": true, "replica": true, "exact": true, "galaxy": false} {
		if Known(scope) != want {
			t.Errorf("Known(%q) = %v, want %v", scope, !want, want)
		}
	}
}

// short runs a scenario on a fleet of three in this process, for a moment.
func short(t *testing.T, name, scope string, measured time.Duration) *bench.Run {
	t.Helper()
	r, err := Run(t.Context(), Options{
		Scenario: scenario(t, name), Scope: scope, Replicas: 3, Tenants: 10, Seed: 1, Limit: 40,
		Warm: time.Second, Measured: measured, Logs: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestExactIsFairerThanReplica puts the same load through two fleets. Bounds
// are wide: the machine may be busy, and what is tested is the bench.
func TestExactIsFairerThanReplica(t *testing.T) {
	replica, exact := short(t, "heavyall", "replica", 3*time.Second), short(t, "heavyall", "exact", 3*time.Second)
	if replica.Jain > 0.9 || exact.Jain < replica.Jain+0.05 {
		t.Errorf("Jain %v in scope replica, %v in exact", replica.Jain, exact.Jain)
	}
	for _, r := range []*bench.Run{replica, exact} {
		if r.OverAdmissionTotal > 1 {
			t.Errorf("%s: %v of the limit", r.Scope, r.OverAdmissionTotal)
		}
		if r.Utilisation < 0.3 || r.CallsPerGrant <= 0 || r.SmallWaits == 0 || r.EtaWaits == 0 {
			t.Errorf("%s: utilisation %v, %v calls per grant, %d small waits, %d estimates", r.Scope, r.Utilisation, r.CallsPerGrant, r.SmallWaits, r.EtaWaits)
		}
		if len(r.JainSeries) != 4 || r.Redis != "embedded" || r.TenantsCount != 10 || len(r.ReplicasUsed) != 1 {
			t.Errorf("%s: %d seconds, redis %s, %d tenants, used %v", r.Scope, len(r.JainSeries), r.Redis, r.TenantsCount, r.ReplicasUsed)
		}
	}
	for i, one := range replica.Tenants {
		if two := exact.Tenants[i]; one.Name != two.Name || one.Weight != two.Weight {
			t.Errorf("tenant %d is %s in one scope, %s in the other", i, one.Name, two.Name)
		}
	}
	if replica.PoolCallsPerGrant != 0 || exact.PoolCallsPerGrant == 0 {
		t.Errorf("calls in turns: %v per grant in scope replica, %v in exact", replica.PoolCallsPerGrant, exact.PoolCallsPerGrant)
	}
}

func TestReplicaLeavesAndComesBack(t *testing.T) {
	r := short(t, "join-leave", "exact", 6*time.Second)
	if len(r.Faults) != 2 || r.Faults[0].Kind != "leave" || r.Faults[1].Kind != "join" || r.Faults[1].HealMS <= 0 {
		t.Errorf("faults %+v", r.Faults)
	}
	if len(r.ReplicasUsed) == 0 || r.OverAdmissionTotal > 1 {
		t.Errorf("used %v, %v of the limit", r.ReplicasUsed, r.OverAdmissionTotal)
	}
}

func TestStallStopsARedisOfItsOwn(t *testing.T) {
	r := short(t, "stall", "exact", 3*time.Second)
	if r.Redis == "embedded" || len(r.Faults) != 1 || r.Faults[0].Kind != "redis_stall" {
		t.Errorf("redis %s, faults %+v", r.Redis, r.Faults)
	}
}

func TestGossipIsCutAndHeals(t *testing.T) {
	r := short(t, "gossip-cut", "exact", 5*time.Second)
	if len(r.Faults) != 1 || r.Faults[0].DetectMS < 0 {
		t.Errorf("nobody noticed the cut: %+v", r.Faults)
	}
}

// TestProcesses kills one of two processes and sees it come back.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	binary, err := FindHeadway(t.Context(), "", dir)
	if err != nil {
		t.Fatal(err)
	}
	redis, err := startRedis(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer redis.close()
	r, err := Run(t.Context(), Options{
		Scenario: scenario(t, "replica-crash"), Scope: "exact", Replicas: 2, Tenants: 10, Seed: 1, Limit: 40,
		Warm: time.Second, Measured: 3 * time.Second, Redis: redis.addr, Headway: binary, Logs: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Faults[0]; f.DetectMS <= 0 || f.HealMS <= 0 || f.Outage.Failed == 0 || f.Outage.Admitted == 0 {
		t.Errorf("%+v, %+v", f, f.Outage)
	}
	// The one that was killed may come back later than the last figure.
	if len(r.ReplicasUsed) == 0 || r.ReplicasUsed[0].RSSMB <= 0 || r.Utilisation == 0 {
		t.Errorf("used %v, utilisation %v", r.ReplicasUsed, r.Utilisation)
	}
}

func TestMistakesAreSaid(t *testing.T) {
	o := Options{Scenario: scenario(t, "even"), Scope: "exact", Replicas: 1, Tenants: 2, Limit: 10, Measured: time.Second, Logs: io.Discard}
	o.Redis = "127.0.0.1:1"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no Redis answers at 127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
	o.Redis, o.Scope = "", "galaxy"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "galaxy") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.Scope = "exact"
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	if _, err := FindHeadway(t.Context(), "no/such/program", ""); err == nil {
		t.Error("found a program that does not exist")
	}
}

func TestReadGauges(t *testing.T) {
	got := readGauges(strings.NewReader(`# HELP headway_store_calls_total Calls
headway_store_calls_total{script="admit"} 3
headway_store_calls_total{script="pool"} 4
headway_store_calls_total{script="lease"} 5
process_cpu_seconds_total 1.25
process_resident_memory_bytes 2e+07
nonsense
other{a="b c"} NaN
`))
	want := gauges{calls: bench.Calls{Admit: 3, Pool: 4, Total: 12}, cpu: 1.25, rss: 2e7}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestRelay passes both protocols on until it is cut, and again once healed.
func TestRelay(t *testing.T) {
	tcp, udp := echo(t)
	r, err := startRelay(tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	conn.Write([]byte("ping"))
	buf := make([]byte, 64)
	if n, err := conn.Read(buf); err != nil || !bytes.Equal(buf[:n], []byte("ping")) {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	packet, err := net.Dial("udp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer packet.Close()
	packet.Write([]byte("one"))
	if got := <-udp; got != "one" {
		t.Fatalf("datagram %q", got)
	}
	r.cut()
	if _, err := conn.Read(buf); err == nil {
		t.Error("the connection outlives the cut")
	}
	packet.Write([]byte("lost"))
	// The relay reads datagrams in order: by the time that it passes one on
	// again, the lost one has been met while it was cut, or is still to come.
	if other, err := net.Dial("tcp", r.addr); err == nil {
		defer other.Close()
		other.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := other.Read(buf); err == nil {
			t.Error("a connection passes a cut relay")
		}
	}
	r.heal()
	for got := ""; got != "two"; got = <-udp {
		packet.Write([]byte("two"))
	}
}

// echo serves TCP, and tells what comes over UDP at the same address.
func echo(t *testing.T) (net.Listener, <-chan string) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close(); udp.Close() })
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	got := make(chan string, 64)
	go func() {
		buf := make([]byte, 64)
		for {
			n, _, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			got <- string(buf[:n])
		}
	}()
	return tcp, got
}
