package stage

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// TestOutageOfEveryKind lets the store be away in each way, for a moment, before
// a fleet in this process. What is tested is that the bench makes it happen,
// undoes it, and sees both; so the store has more time than a busy machine takes.
func TestOutageOfEveryKind(t *testing.T) {
	for _, kind := range bench.OutageKinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // they wait, mostly
			measured := 5 * time.Second
			if kind == bench.RedisFailover {
				measured = 7 * time.Second // sentinels take their time
			}
			s := bench.Cell{Kind: kind, Policy: "fail_closed"}.Scenario(true)
			s.StoreTimeout, s.Faults[0].Pause = 250*time.Millisecond, time.Second
			s.Faults[0].At, s.Faults[0].For = 1/measured.Seconds(), 1.5/measured.Seconds()
			r, err := Run(t.Context(), Options{
				Scenario: s, Scope: "replica", Replicas: 2, Tenants: s.Tenants, Seed: 1, Limit: 20, Measured: measured, Logs: io.Discard,
			})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Faults) != 1 || r.Faults[0].Outage == nil || r.RedisVersion == "" || r.OnOutage != "fail_closed" {
				t.Fatalf("redis %q, policy %q, faults %+v", r.RedisVersion, r.OnOutage, r.Faults)
			}
			f, o := r.Faults[0], r.Faults[0].Outage
			if o.FirstPolicyMS < 0 || o.RecoveredMS < 0 || o.Unavailable == 0 || o.AdmittedLate > 0 {
				t.Errorf("%+v, %+v", f, o)
			}
			if f.AwayS <= 0 || f.AwayS > f.ForS || f.AwayS < 1.4 && kind != bench.RedisFailover {
				t.Errorf("away for %v of %v s, not for 1.5", f.AwayS, f.ForS)
			}
		})
	}
}

func TestImpossibleTroublesAreSaid(t *testing.T) {
	if Possible(bench.Cell{Kind: bench.RedisDown, Policy: "fail_sideways"}) {
		t.Error("an unknown policy is possible")
	}
	if !KnownPolicy("fail_open") || KnownPolicy("fail_sideways") {
		t.Error("KnownPolicy does not know what the configuration accepts")
	}
	s := &show{}
	if err := s.takeStore(bench.Trouble{Kind: bench.Leave}); err == nil {
		t.Error("a replica that leaves takes the store away")
	}
	f := &fleet{members: []member{local{}}}
	if err := f.killOne(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "as processes") {
		t.Errorf("a replica in this process was killed: %v", err)
	}
}

// TestPassOn holds order, content and delays against what was asked for.
func TestPassOn(t *testing.T) {
	var delay atomic.Int64
	in, feed := io.Pipe()
	out := &stamped{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		passOn(out, in, func() time.Duration { return time.Duration(delay.Load()) })
	}()
	delay.Store(int64(200 * time.Millisecond))
	begin := time.Now()
	io.WriteString(feed, "late ")
	io.WriteString(feed, "too ")
	delay.Store(0)
	io.WriteString(feed, "soon")
	feed.Close()
	<-done
	if got := out.String(); got != "late too soon" {
		t.Errorf("%q came out", got)
	}
	if first := out.first.Sub(begin); first < 200*time.Millisecond {
		t.Errorf("the first came after %v", first)
	}
}

// stamped notes when it is first written to.
type stamped struct {
	bytes.Buffer
	first time.Time
}

func (s *stamped) Write(p []byte) (int, error) {
	if s.first.IsZero() {
		s.first = time.Now()
	}
	return s.Buffer.Write(p)
}

func TestParseStat(t *testing.T) {
	text := "77 (a (strange) name) S 5 77 77 0 -1 4194304 117 0 0 0 30 4 200 10 20 0 1 0 1186917 3133440 364"
	if p, ok := parseStat(text); !ok || p != (procStat{pid: 77, parent: 5, own: 34, children: 210}) {
		t.Errorf("%+v, %v", p, ok)
	}
	for _, bad := range []string{"", "77", "77 (x) S 5"} {
		if _, ok := parseStat(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
	if n := busyTicks("cpu  10 1 5 1000 50 2 3 4 99 99\ncpu0 1 1 1 1 1 1 1 1 1 1\n"); n != 25 {
		t.Errorf("busy for %d ticks", n)
	}
}

func TestMachineLoad(t *testing.T) {
	at := time.Unix(1000, 0)
	a := cpuTimes{at: at, busy: 100, ours: 40, known: true}
	b := cpuTimes{at: at.Add(2 * time.Second), busy: 350, ours: 140, known: true}
	if got := loadBetween(a, b); got.Ours != 0.5 || got.Others != 0.75 || got.CPUs < 1 {
		t.Errorf("%+v", got)
	}
	b.known = false
	if got := loadBetween(a, b); got != (bench.MachineLoad{CPUs: -1, Ours: -1, Others: -1}) {
		t.Errorf("%+v of what is not known", got)
	}
	if _, err := os.Stat("/proc/stat"); err == nil && !readCPU().known {
		t.Error("/proc is there and was not read")
	}
}
