package redisstore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/lua"
)

// TestArguments: keys and arguments of an admit, as the script's header has them.
func TestArguments(t *testing.T) {
	k := limiter.Take{
		Charges: []limiter.Charge{
			{Bucket: limiter.BucketID{Dimension: limiter.User, ID: "aa"}, Rate: limiter.Rate{Limit: 3, Per: time.Second, Burst: 5}, Cost: 1},
			{Bucket: limiter.BucketID{Dimension: limiter.Team, Class: limiter.Tokens, ID: "bb"}, Rate: limiter.Rate{Limit: 1 << 60, Burst: 1 << 60, Per: time.Hour}},
		},
		Slots: []limiter.Slot{{Slot: limiter.SlotID{Dimension: limiter.Client, ID: "cc"}, Cap: 7}},
	}
	c := newCall()
	c.seq, c.wants = 9, []int64{4}
	for range 2 { // buffers are reused
		c.buildAdmit(k, "beef", 10_000)
	}
	if want := []string{"hw:{hw}:b:user:aa", "hw:{hw}:t:team:bb", "hw:{hw}:l:client:cc"}; !slices.Equal(c.keys, want) {
		t.Errorf("keys %v, want %v", c.keys, want)
	}
	want := "beef 9 10000 2 3000000 1000000 5000000 1000000 0 9007199254000000 3600000000 9007199254000000 0 0 7 4"
	if got := strings.Join(c.args, " "); got != want {
		t.Errorf("arguments\n%s, want\n%s", got, want)
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
