package redisstore

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/lua"
)

// TestArguments: keys and arguments of two decisions, as the script's header has
// them: kind by kind, and each rate once.
func TestArguments(t *testing.T) {
	user := limiter.Charge{
		Bucket: limiter.BucketID{Dimension: limiter.User, ID: "aa"},
		Rate:   limiter.Rate{Limit: 3, Per: time.Second, Burst: 5}, Cost: 1, InTurn: true,
	}
	team := limiter.Charge{
		Bucket: limiter.BucketID{Dimension: limiter.Team, Class: limiter.Tokens, ID: "bb"},
		Rate:   limiter.Rate{Limit: 1 << 60, Burst: 1 << 60, Per: time.Hour},
	}
	slot := limiter.Slot{Slot: limiter.SlotID{Dimension: limiter.Client, ID: "cc"}, Cap: 7}
	one := limiter.Take{Charges: []limiter.Charge{user, team}, Slots: []limiter.Slot{slot}}
	user.Bucket.ID, team.Rate = "dd", user.Rate
	two := limiter.Take{Charges: []limiter.Charge{user, team}, Slots: []limiter.Slot{slot}}
	for range 2 { // buffers are reused
		gs := &groups{}
		for i, k := range []limiter.Take{one, two} {
			c := newCall()
			c.ask(k, "beef", 10_000)
			c.seq, c.notAfter, c.wants = int64(9+i), int64(100+i), []int64{int64(4 + i)}
			gs.add(c)
		}
		if gs.used != 1 {
			t.Fatalf("two decisions of one shape are %d calls, want 1", gs.used)
		}
		keys, args := gs.list[0].spell()
		want := "hw:{hw}:b:user:aa hw:{hw}:t:team:bb hw:{hw}:b:user:dd hw:{hw}:t:team:bb " +
			"hw:{hw}:l:client:cc hw:{hw}:l:client:cc hw:{hw}:p:user:aa:c hw:{hw}:p:user:dd:c"
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("keys\n%v, want\n%v", got, want)
		}
		want = "beef 10000 2 1 1 2 3000000 1000000 5000000 0 9007199254000000 3600000000 9007199254000000 0 " +
			"100 9 1 1000000 2 0 7 4 101 10 1 1000000 1 0 7 5"
		if got := strings.Join(args, " "); got != want {
			t.Errorf("arguments\n%s, want\n%s", got, want)
		}
		gs.reset()
	}
}

// TestGroups: decisions of one shape share a call, in the order in which they came,
// and none is lost or sent twice.
func TestGroups(t *testing.T) {
	gs := &groups{}
	for round := range 3 { // buffers are reused
		var want, got []int64
		for i, buckets := range []int{1, 2, 1, 3, 2, 1, 2, 2} { // 3 of one bucket, 4 of two, 1 of three
			c := newCall()
			c.ask(limiter.Take{Charges: make([]limiter.Charge, buckets)}, "beef", 10_000)
			c.seq = int64(i)
			gs.add(c)
		}
		sizes := []int{}
		for _, g := range gs.all() {
			sizes = append(sizes, len(g.calls))
			for _, c := range g.calls {
				got = append(got, c.seq)
				if c.shape() != g.shape {
					t.Errorf("round %d: call %d is in a group of shape %+v", round, c.seq, g.shape)
				}
			}
		}
		want = []int64{0, 2, 5, 1, 4, 6, 7, 3}
		if !slices.Equal(got, want) || !slices.Equal(sizes, []int{3, 4, 1}) {
			t.Errorf("round %d: calls %v in groups of %v, want %v in groups of [3 4 1]", round, got, sizes, want)
		}
		gs.reset()
	}
}

// TestPanicIsAFailure: whatever the client library panics with fails one batch.
func TestPanicIsAFailure(t *testing.T) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{fence: &fence{base: time.Now()}, metrics: m} // redis is nil
	one := newCall()
	one.script, one.keys, one.until = &lua.Lease, []string{"{a}x", "{b}y"}, time.Now().Add(time.Hour)
	c.run(nil)
	c.run([]*call{one})
	if one.err == nil || one.err.kind != kindPanic {
		t.Fatalf("got %v, want a failure of kind %s", one.err, kindPanic)
	}
	if _, failure := c.pipeline(rueidis.Commands{}); failure == nil || failure.kind != kindPanic {
		t.Fatalf("got %v, want a failure of kind %s", failure, kindPanic)
	}
}

// TestOptions: every mistake is named.
func TestOptions(t *testing.T) {
	_, err := New(Options{Address: "nowhere", Database: -1, Timeout: -1, LeaseTTL: time.Millisecond, ProbeInterval: -1})
	if err == nil {
		t.Fatal("wrong options were accepted")
	}
	for _, part := range []string{`address "nowhere"`, "database -1", "timeout", "lease ttl 1ms", "probe interval"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not named in: %v", part, err)
		}
	}
	o, err := Options{Address: "redis:6379", TLS: true}.withDefaults()
	if err != nil || o.TLSConfig.ServerName != "redis" || o.Incarnation == 0 || o.Timeout != DefaultTimeout {
		t.Fatalf("defaults: %+v, %v", o, err)
	}
}

// TestOptionModes: what belongs to another mode is a mistake, not ignored.
func TestOptionModes(t *testing.T) {
	nodes := []string{"a:1", "b:2"}
	for _, c := range []struct {
		o    Options
		want string // "": fine
	}{
		{Options{Mode: ModeCluster, Addresses: nodes, Layout: LayoutTenant}, ""},
		{Options{Mode: ModeSentinel, Addresses: nodes, SentinelMaster: "m", SentinelUsername: "u", SentinelPassword: "p", Database: 3}, ""},
		{Options{Address: "a:1", Layout: LayoutTenant}, ""},
		{Options{}, `address ""`},
		{Options{Mode: "replicated", Address: "a:1"}, `mode "replicated"`},
		{Options{Address: "a:1", Layout: "shards"}, `layout "shards"`},
		{Options{Address: "a:1", Addresses: nodes}, "want address alone"},
		{Options{Mode: ModeCluster, Address: "a:1", Addresses: nodes}, "want addresses"},
		{Options{Mode: ModeCluster}, "no addresses"},
		{Options{Mode: ModeCluster, Addresses: []string{"a:1", "b"}}, `address "b"`},
		{Options{Mode: ModeCluster, Addresses: nodes, Database: 1}, "a cluster has only 0"},
		{Options{Mode: ModeCluster, Addresses: nodes, SentinelMaster: "m"}, "sentinel settings"},
		{Options{Mode: ModeSentinel, Addresses: nodes}, "no sentinel master"},
		{Options{Address: "a:1", TLSFiles: TLSFiles{CA: "x"}}, "without TLS"},
		{Options{Address: "a:1", TLS: true, TLSConfig: &tls.Config{}, TLSFiles: TLSFiles{CA: "x"}}, "set one of them"},
		{Options{Address: "a:1", TLS: true, TLSFiles: TLSFiles{CA: "/nowhere"}}, "tls ca"},
		{Options{Address: "a:1", TLS: true, TLSFiles: TLSFiles{CA: "call.go"}}, "no certificate in it"},
		{Options{Address: "a:1", TLS: true, TLSFiles: TLSFiles{Cert: "call.go"}}, "tls cert"},
	} {
		_, err := c.o.withDefaults()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", c.o, err, c.want)
		}
	}
}
