package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Virtual is a Raw whose clock only Wait moves.
type Virtual interface{ Raw }

// TurnProperties runs the properties F1 to F10 of turns, as named in the
// package comment, on fleets in virtual time. quick leaves out what takes
// thousands of calls, for servers that need a millisecond for each.
func TurnProperties(t *testing.T, open func(t *testing.T) Virtual, quick bool) {
	for _, p := range []struct {
		name string
		long bool
		run  func(*testing.T, func(t *testing.T) Virtual)
	}{
		{"F1-F2-F3-F5-F8-fair", true, fleetsAreFair}, {"F4-no-starvation", true, noStarvation},
		{"F6-idle-earns-nothing", true, idleEarnsNothing}, {"F7-dead-claim", false, deadClaim},
		{"F9-stall", true, stalled}, {"F10-late-costs", true, lateCosts},
		{"slots", true, slotsAreFair}, {"slots-of-the-dead", true, slotsOfTheDead},
		{"newcomer", false, newcomer}, {"blocked-saves-nothing", false, blockedSavesNothing},
		{"correction", false, correction}, {"lost-state", false, lostState},
	} {
		if !p.long || !quick {
			t.Run(p.name, func(t *testing.T) { p.run(t, open) })
		}
	}
}

// crowd is n tenants on so many replicas: one that floods, 30 % backlogged, the
// others asking for 0.3 of an equal share at random.
type crowd struct {
	replicas, tenants int
	rate              int64 // tokens per second
	split             string
	cost              func(*rand.Rand) int64
	mean              float64 // of cost
}

func one(*rand.Rand) int64 { return 1 }

// lognormal costs have σ = 1 and a mean of about 4 tokens, at most 40.
func lognormal(r *rand.Rand) int64 {
	return max(1, min(40, int64(math.Round(4*math.Exp(r.NormFloat64()-0.5)))))
}

// fleet makes a simulated fleet of the crowd.
func (c crowd) fleet(t *testing.T, s Raw) *sim {
	if c.cost == nil {
		c.cost, c.mean = one, 1
	}
	burst := max(40, c.rate/10)
	f := &sim{
		t: t, s: s, rnd: Seeded(t), warmup: 2 * second,
		bucket: Bucket{Key: "pool", Limit: c.rate * token, Period: second, Burst: burst * token},
	}
	var all []int
	for i := range c.replicas {
		all = append(all, i)
	}
	for i := range c.tenants {
		w := &simTenant{name: fmt.Sprintf("t%04d", i), weight: 1, cost: c.cost, at: all}
		if c.split == "sticky" || (c.split == "heavyall" && i > 0) {
			w.at = []int{f.rnd.IntN(c.replicas)}
		}
		if i > max(2, c.tenants*3/10) {
			w.rate = 0.3 * float64(c.rate) / float64(c.tenants) / c.mean
		}
		f.tenants = append(f.tenants, w)
	}
	return f
}

// fleetsAreFair: over any interval two backlogged tenants differ by at most
// 2·K costs, all of them get the same, nothing is left lying, and calls are few.
func fleetsAreFair(t *testing.T, open func(t *testing.T) Virtual) {
	for _, c := range []crowd{
		{replicas: 1, tenants: 30, split: "even"}, {replicas: 3, tenants: 30, split: "even"},
		{replicas: 2, tenants: 30, split: "heavyall"}, {replicas: 3, tenants: 30, split: "heavyall"},
		{replicas: 8, tenants: 100, split: "even"}, {replicas: 8, tenants: 100, split: "sticky"},
		{replicas: 8, tenants: 100, split: "heavyall"}, {replicas: 32, tenants: 100, split: "heavyall"},
		{replicas: 32, tenants: 100, split: "even"}, {replicas: 8, tenants: 100, split: "heavyall", cost: lognormal, mean: 4},
	} {
		c.rate = 400 * int64(max(1, c.mean))
		t.Run(fmt.Sprintf("%s/N=%d/T=%d/mean=%g", c.split, c.replicas, c.tenants, c.mean), func(t *testing.T) {
			f := c.fleet(t, open(t))
			for i, w := range f.tenants { // unequal weights too
				w.weight = float64(1 + i%3)
			}
			f.run(c.replicas, 12*time.Second)
			t.Log(f, "worst lag", f.lag.worst())
			if lag := f.lag.worst(); lag > 2*turnBids {
				t.Errorf("F1: two backlogged tenants differed by %.1f costs over some interval, at most %d", lag, 2*turnBids)
			}
			if f.jain() < 0.99 {
				t.Errorf("F2: Jain %.4f, at least 0.99", f.jain())
			}
			if f.utilisation() < 0.99 {
				t.Errorf("F3: utilisation %.4f, at least 0.99", f.utilisation())
			}
			if f.guard.broken != "" {
				t.Error(f.guard.broken)
			}
			if f.callsPerGrant() > 4 {
				t.Errorf("F8: %.2f calls per grant, at most 4", f.callsPerGrant())
			}
		})
	}
}

// noStarvation: F4, with costs of σ = 1.
func noStarvation(t *testing.T, open func(t *testing.T) Virtual) {
	f := crowd{replicas: 8, tenants: 60, rate: 800, split: "even", cost: lognormal, mean: 4}.fleet(t, open(t))
	f.run(8, 62*time.Second)
	t.Log(f)
	if f.poorest() < 0.9 {
		t.Errorf("F4: the poorest backlogged tenant got %.3f of its share, at least 0.9", f.poorest())
	}
}

// idleEarnsNothing: F6. The third tenant is away for an hour.
func idleEarnsNothing(t *testing.T, open func(t *testing.T) Virtual) {
	const leaves, returns = 10 * second, 3610 * second
	f := crowd{replicas: 2, tenants: 3, rate: 5, split: "even"}.fleet(t, open(t))
	f.bucket.Burst = 5 * token
	f.warmup = returns
	f.tenants[2].idle = func(now int64) bool { return now >= leaves && now < returns }
	worst := 0.0
	for s := int64(0); s < 20; s++ {
		f.at(returns+s*second, func() {
			worst = max(worst, f.tenants[2].served-min(f.tenants[0].served, f.tenants[1].served))
		})
	}
	f.run(2, 3640*time.Second)
	if got := f.tenants[2].served; got < 40 {
		t.Fatalf("F6: after its return it got %g in 30 s, want about 50", got)
	}
	if worst > 2 { // one head each: its own, and the one that another had just got
		t.Errorf("F6: back after an hour it came %.1f requests ahead, at most 2", worst)
	}
}

// stalled: F9 with F2, the server pausing for 200 ms every 2 s.
func stalled(t *testing.T, open func(t *testing.T) Virtual) {
	f := crowd{replicas: 8, tenants: 100, rate: 400, split: "heavyall"}.fleet(t, open(t))
	f.stall = pauses
	f.run(8, 20*time.Second)
	t.Log(f)
	if f.p99() > 300*time.Millisecond || f.jain() < 0.999 {
		t.Errorf("F9: p99 %v, Jain %.4f; want at most 300 ms, at least 0.999", f.p99(), f.jain())
	}
}

// pauses are 200 ms in every 2 s.
func pauses(at int64) int64 {
	if in := at % (2 * second); in < second/5 {
		return at - in + second/5
	}
	return at
}

// lateCosts: F10. Half of the tenants really use half of their estimate, which
// shows a quarter of a second later.
func lateCosts(t *testing.T, open func(t *testing.T) Virtual) {
	f := halves(t, open(t))
	f.run(4, 20*time.Second)
	t.Log(f)
	if f.jain() < 0.99 {
		t.Errorf("F10: Jain %.4f on what was really used, at least 0.99", f.jain())
	}
}

func halves(t *testing.T, s Raw) *sim {
	f := crowd{replicas: 4, tenants: 20, rate: 400, split: "sticky"}.fleet(t, s)
	f.hold = second / 4
	for i, w := range f.tenants {
		w.rate = 0
		w.cost = func(*rand.Rand) int64 { return 4 }
		if i%2 == 0 {
			w.actual = func(cost int64) int64 { return cost / 2 }
		}
	}
	return f
}

// turn is a call for turns at a bucket that has 4 tokens and 1 per second.
func turn(inc string, bids ...Bid) Call {
	return Call{
		Op: Pool, Inc: inc, Seq: 1, TTL: 1000, Grace: turnGrace, Most: turnBids, Bids: bids,
		Buckets: []Bucket{{Key: "turn", Limit: token, Period: second, Burst: 4 * token}},
	}
}

func bidOf(tenant string, cost int64, since float64) Bid {
	return Bid{Tenant: tenant, Cost: cost * token, Weight: 1, Since: since, Seq: 1}
}

// deadClaim: F7. A replica dies that was promised the next turn.
func deadClaim(t *testing.T, open func(t *testing.T) Virtual) {
	s := open(t)
	s.Run(turn("a1", bidOf("x", 4, -1)))
	promised := s.Run(turn("a1", bidOf("y", 3, -1)))[2] // in 3 s, then it dies
	late := bidOf("z", 1, -1)
	r := s.Run(turn("b1", late))
	if r[2] != 4*second || r[3] != second {
		t.Fatalf("F7: behind a claim of 3: told %d µs, alone %d; want 4 s and 1 s", r[2], r[3])
	}
	asked, began := 0, r[1]
	for r = s.Run(turn("b1", late)); TurnsOf(turn("b1", late), r)[0].State != 1; r = s.Run(turn("b1", late)) {
		if asked++; asked > 1000 {
			t.Fatal("F7: never served")
		}
		s.Wait(5 * time.Millisecond)
	}
	// Served without the dead one it would have been after 1 s; promised + grace
	// is what the claim may cost.
	if took, most := r[1]-began, promised+turnGrace+5000; took > most {
		t.Errorf("F7: served after %d µs, at most %d", took, most)
	}
	s.Wait(time.Second)
	if r = s.Run(turn("b1", late)); TurnsOf(turn("b1", late), r)[0].State != 1 {
		t.Errorf("F7: the claim of the dead held another turn back: %s", show(turn("b1", late), r))
	}
}

// newcomer: who has not waited may not overtake those who have.
func newcomer(t *testing.T, open func(t *testing.T) Virtual) {
	s := open(t)
	c := turn("a1", bidOf("x", 4, -1))
	b := c.Buckets[0]
	b.Amount, b.InTurn = token, true
	fresh := Call{Op: Admit, Inc: "b1", Seq: 1, TTL: 1000, Buckets: []Bucket{b}}
	if r := s.Run(fresh); r[0] != 1 || r[4] != 0 {
		t.Fatalf("nobody waits: got %v, want a grant", r)
	}
	s.Run(c) // waits for a fourth token
	s.Wait(500 * time.Millisecond)
	if r := s.Run(fresh); r[0] != 0 || r[3] != 0 || r[4] != 1 {
		t.Fatalf("somebody waits for all of it: got %v, want refused as contended though 3 tokens are there", r)
	}
	b.InTurn = false
	if r := s.Run(Call{Op: Admit, Inc: "b1", Seq: 1, TTL: 1000, Buckets: []Bucket{b}}); r[0] != 1 {
		t.Fatalf("a charge that need not wait its turn: got %v, want a grant", r)
	}
	s.Run(turn("a1")) // withdraws
	if r := s.Run(fresh); r[0] != 1 || r[4] != 0 {
		t.Fatalf("after it withdrew: got %v, want a grant", r)
	}
	s.Run(c)
	s.Wait(10 * time.Second) // it died
	if r := s.Run(fresh); r[0] != 1 || r[4] != 0 {
		t.Fatalf("long after its claim: got %v, want a grant", r)
	}
}

// blockedSavesNothing: a tenant whose own limit blocks it takes no turns, delays
// nobody, and saves up none.
func blockedSavesNothing(t *testing.T, open func(t *testing.T) Virtual) {
	s := open(t)
	blocked, since := bidOf("x", 1, -1), -1.0
	call := func(bids ...Bid) Call {
		c := turn("a1", bids...)
		c.Buckets[0].Burst = 8 * token
		return c
	}
	for range 60 {
		blocked.Since, blocked.Buckets = since, []Bucket{{Key: "own", Limit: 0, Period: second}}
		c := call(blocked, bidOf("y", 1, 0))
		told := TurnsOf(c, s.Run(c))
		if told[0].State != 2 || told[1].State == 2 {
			t.Fatalf("got %+v, want the first blocked, the second not", told)
		}
		since = told[0].Since
		s.Wait(time.Second)
	}
	s.Wait(8 * time.Second)
	c := call()
	for range turnBids {
		c.Bids = append(c.Bids, bidOf("x", 1, since), bidOf("y", 1, 0))
	}
	got := map[string]int{}
	for i, told := range TurnsOf(c, s.Run(c)) {
		if told.State == 1 {
			got[c.Bids[i].Tenant]++
		}
	}
	if got["x"] > 5 || got["x"]+got["y"] != 8 { // one ahead, and first among equals
		t.Errorf("after a minute of being blocked: turns %v of 8, want at most 5 for x", got)
	}
}

// correction: a settled cost moves the tag with the bucket, within bounds.
func correction(t *testing.T, open func(t *testing.T) Virtual) {
	s := open(t)
	finish := func() float64 {
		c := turn("a1", bidOf("x", 4, 0))
		c.Most = 0 // just look
		r := s.Run(c)
		s.Run(turn("a1"))
		return TurnsOf(c, r)[0].Finish
	}
	settle := func(delta int64, weight float64) int64 {
		b := turn("a1").Buckets[0]
		b.Amount, b.MaxDebt, b.Tenant, b.Weight = delta*token, 1<<52, "x", weight
		return s.Run(Call{Op: Settle, Inc: "a1", Seq: 1, TTL: 1000, Buckets: []Bucket{b}})[2]
	}
	settle(2, 1) // before any turn: nothing to correct
	c := turn("a1", bidOf("x", 4, -1))
	if f := TurnsOf(c, s.Run(c))[0].Finish; f != 4 {
		t.Fatalf("a turn of 4: tag %g, want 4", f)
	}
	for _, step := range []struct {
		delta  int64
		weight float64
		finish float64
		level  int64
	}{{1, 1, 3, 1}, {-3, 2, 4.5, -2}, {1, 0.5, 2.5, -1}, {100, 1, -16, 4}, {-6, 1, -10, -2}} {
		if level := settle(step.delta, step.weight); level != step.level*token {
			t.Fatalf("%+v: level %d", step, level)
		}
		if f := finish(); f != step.finish {
			t.Fatalf("%+v: tag %g", step, f)
		}
	}
	late := turn("a1").Buckets[0]
	late.Amount, late.MaxDebt, late.Tenant, late.Weight = token, 1<<52, "x", 1
	s.Run(Call{Op: Settle, Inc: "a1", Seq: 1, TTL: 1000, Buckets: []Bucket{late}, Retry: true})
	if f := finish(); f != -10 {
		t.Fatalf("a give-back in doubt: tag %g, want it left at -10 as the bucket is", f)
	}
}

// lostState: replicas that remember a virtual time of before are equal again.
func lostState(t *testing.T, open func(t *testing.T) Virtual) {
	s := open(t)
	s.Flush()
	c := turn("a1", bidOf("x", 1, 1e6), bidOf("y", 1, 3), bidOf("x", 1, 1e6), bidOf("y", 1, 3))
	for i, told := range TurnsOf(c, s.Run(c)) {
		if told.State != 1 || told.Since != 0 {
			t.Errorf("bid %d: got %+v, want granted since 0", i, told)
		}
	}
}
