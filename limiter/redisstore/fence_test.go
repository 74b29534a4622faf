package redisstore

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestFenceIsNeverLate: over random delays, connections and steps of the
// server's clock, a fence lies at most one call's travel time before the true
// deadline, and after it never, except until the first reply after a step back.
func TestFenceIsNeverLate(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	base := time.Now()
	f := &fence{base: base}
	if _, known := f.at(base); known {
		t.Fatal("a new fence claims to know the time")
	}
	offset := int64(1_800_000_000_000_000) // Redis time of base, µs
	now := base
	at := func(tm time.Time) int64 { return offset + tm.Sub(base).Microseconds() }
	for step := range 20_000 {
		if rnd.IntN(500) == 0 {
			// A step by less than a call travels is drift, which shows later.
			step := 10_010 + rnd.Int64N(10_000_000)
			offset += step * (1 - 2*rnd.Int64N(2))
		}
		if rnd.IntN(300) == 0 {
			f.connected()
		}
		gen, sent := f.generation(), now
		there := time.Duration(rnd.Int64N(int64(5 * time.Millisecond)))
		back := time.Duration(rnd.Int64N(int64(5 * time.Millisecond)))
		redis := at(now.Add(there))
		now = now.Add(there + back)
		f.observe(gen, sent, now, redis, redis)
		got, known := f.at(now)
		if !known {
			t.Fatalf("seed %d, step %d: nothing known after a reply", seed, step)
		}
		if late := got - at(now); late > 0 || late < -10_003 {
			t.Fatalf("seed %d, step %d: the fence is %d µs after its instant, want -10003..0", seed, step, late)
		}
		now = now.Add(time.Duration(rnd.Int64N(int64(time.Second))))
	}
}

// TestFenceForgetsConnections: a reply to a call sent before a connection was
// made says nothing about the present server.
func TestFenceForgetsConnections(t *testing.T) {
	base := time.Now()
	f := &fence{base: base}
	gen := f.generation()
	f.connected()
	f.observe(gen, base, base, 1, 1)
	if _, known := f.at(base); known {
		t.Fatal("took the clock of an earlier connection")
	}
	f.observe(f.generation(), base, base, 1_000, 1_000)
	if us, known := f.at(base.Add(time.Second)); !known || us != 1_000_999 {
		t.Fatalf("got %d, %v; want 1000999", us, known)
	}
}

// TestFenceFollowsDrift: a bound of long ago does not last.
func TestFenceFollowsDrift(t *testing.T) {
	base := time.Now()
	f := &fence{base: base}
	// The server's clock is slow by 100 µs/s; travel takes 10 ms, so that no
	// upper bound contradicts.
	var late int64
	for s := range 120 {
		now := base.Add(time.Duration(s) * time.Second)
		redis := now.Sub(base).Microseconds() - int64(100*s)
		f.observe(0, now.Add(-20*time.Millisecond), now, redis, redis)
		got, _ := f.at(now)
		late = max(late, got-redis)
	}
	// A window ends with the first reply after it: a second more of each.
	if most := int64(2 * 100 * (fenceWindow + time.Second) / time.Second); late > most {
		t.Fatalf("the fence was %d µs late, at most two windows of drift, %d", late, most)
	}
}
