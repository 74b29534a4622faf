package storetest

import (
	"testing"
	"time"
)

// Properties runs every property on servers that open makes, one for each.
func Properties(t *testing.T, open func(t *testing.T) Raw) {
	for _, p := range []struct {
		name string
		run  func(*testing.T, Raw)
	}{
		{"B1-B2-rate", rate}, {"B3-refused", refused}, {"B4-tight-wait", tightWait},
		{"B5-clock-back", clockBack}, {"B6-give-back", giveBack}, {"B7-above-burst", aboveBurst},
		{"fence", fence}, {"together", together}, {"settle-retry", settleRetry},
		{"L1-L2-never-over-cap", neverOverCap}, {"L3-crash", crash}, {"L4-replay", replay},
		{"slept-past-ttl", slept},
	} {
		t.Run(p.name, func(t *testing.T) { p.run(t, open(t)) })
	}
}

// single is an admit of one bucket.
func single(b Bucket) Call {
	return Call{Op: Admit, Inc: "a1", Seq: 1, TTL: 1000, Buckets: []Bucket{b}}
}

// look is an inspect of the same.
func look(b Bucket) Call { return Call{Op: Inspect, Inc: "a1", Buckets: []Bucket{b}} }

// adjust is a first attempt to settle delta, which may owe without bound.
func adjust(b Bucket, delta int64) Call {
	b.Amount, b.MaxDebt = delta, 1<<52
	return Call{Op: Settle, Inc: "a1", Seq: 1, TTL: 1000, Buckets: []Bucket{b}}
}

// rate: B1 and B2, under a caller that always asks again when told to.
func rate(t *testing.T, s Raw) {
	rnd := Seeded(t)
	b := Bucket{Key: "rate", Limit: 1000 * token, Period: second, Burst: 50 * token}
	const maxCost = 20
	type grant struct{ at, cost int64 }
	var grants []grant
	ops := 0
	var missed, last, level int64 // u that flowed into a full bucket, while the machine stood still
	for len(grants) < 60 {
		b.Amount = (1 + rnd.Int64N(maxCost)) * token
		for {
			ops++
			r := s.Run(single(b))
			if last > 0 {
				missed += max(0, level+(r[1]-last)*b.Limit/b.Period-b.Burst)
			}
			last, level = r[1], r[2]
			if r[0] == 1 {
				grants = append(grants, grant{r[1], b.Amount})
				break
			}
			s.Wait(time.Duration(r[3]) * time.Microsecond)
		}
	}
	var sum int64
	for i := range grants {
		sum = 0
		for j := i; j < len(grants); j++ {
			sum += grants[j].cost
			if most := b.Burst + (grants[j].at-grants[i].at)*b.Limit/b.Period; sum > most {
				t.Fatalf("B1: grants %d..%d took %d u in %d µs, at most %d", i, j, sum, grants[j].at-grants[i].at, most)
			}
		}
		if i == 0 {
			w := grants[len(grants)-1].at - grants[0].at
			// What is left at the end was not asked for yet; after a stand it may be all.
			least := b.Burst + w*b.Limit/b.Period - max(maxCost*token, level) - int64(ops) - missed
			if sum < least {
				t.Fatalf("B2: took %d u in %d µs, at least %d", sum, w, least)
			}
		}
	}
}

// refused: B3, for every way to refuse.
func refused(t *testing.T, s Raw) {
	// Nothing may be full again, and so forgotten, while the machine stands still.
	rich := Bucket{Key: "rich", Limit: token, Period: 3600 * second, Burst: 100 * token, Amount: token}
	poor := Bucket{Key: "poor", Limit: token, Period: 3600 * second, Burst: token, Amount: token}
	full := Slot{Key: "full", Cap: 1, Want: 1}
	call := Call{Op: Admit, Inc: "a1", Seq: 5, TTL: 3_600_000, Buckets: []Bucket{rich, poor}, Slots: []Slot{full}}
	if r := s.Run(call); r[0] != 1 {
		t.Fatalf("a first call of full buckets: got %v, want a grant", r)
	}
	for name, c := range map[string]Call{
		"bucket":    {Inc: "a1", Seq: 6, Buckets: []Bucket{rich, poor}},
		"slot":      {Inc: "b1", Seq: 1, Buckets: []Bucket{rich}, Slots: []Slot{full}},
		"own slot":  {Inc: "a1", Seq: 6, Buckets: []Bucket{rich}, Slots: []Slot{{Key: "full", Cap: 1, Want: 2}}},
		"overtaken": {Inc: "a1", Seq: 4, Buckets: []Bucket{rich}, Slots: []Slot{{Key: "full", Cap: 9, Want: 2}}},
		"too late":  {Inc: "a1", Seq: 6, Buckets: []Bucket{rich}, NotAfter: 1},
		"all":       {Inc: "b1", Seq: 1, Buckets: []Bucket{rich, poor}, Slots: []Slot{full}},
	} {
		before := s.State()
		c.Op, c.TTL = Admit, 3_600_000
		if r := s.Run(c); r[0] == 1 {
			t.Errorf("%s: got a grant, want a refusal", name)
		}
		if after := s.State(); after != before {
			t.Errorf("%s: a refused call changed the state\nbefore: %s\nafter:  %s", name, before, after)
		}
	}
}

// tightWait: B4.
func tightWait(t *testing.T, s Raw) {
	for _, limit := range []int64{1 * token, 7 * token, 1000 * token, 999_999_999} {
		b := Bucket{Key: "tight", Limit: limit, Period: 333_333, Burst: 10 * token, Amount: 10 * token}
		s.Run(single(b))
		b.Amount = min(3*token, limit/100+1)
		r := s.Run(look(b))
		for debt := int64(10 * token); r[3] == 0; debt *= 2 { // it has refilled meanwhile: a slower machine owes more
			s.Run(adjust(b, -debt))
			r = s.Run(look(b))
		}
		pass := r[1] + r[3]
		for r[1] < pass {
			if r[3] != pass-r[1] {
				t.Fatalf("limit %d: at %d wait is %d, want %d until %d", limit, r[1], r[3], pass-r[1], pass)
			}
			s.Wait(max(time.Microsecond, time.Duration(r[3]-1)*time.Microsecond))
			r = s.Run(look(b))
		}
		if r[3] != 0 {
			t.Fatalf("limit %d: wait is %d at %d, want 0 from %d on", limit, r[3], r[1], pass)
		}
		s.Run(adjust(b, 10*token))
	}
}

// clockBack: B5.
func clockBack(t *testing.T, s Raw) {
	b := Bucket{Key: "back", Limit: token, Period: 3600 * second, Burst: 10 * token, Amount: 4 * token}
	s.Run(single(b))
	for _, back := range []time.Duration{time.Second, time.Minute, 20 * time.Minute, 24 * time.Hour} {
		before := s.Run(look(b))[2]
		s.Back(back)
		r := s.Run(look(b))
		// Real servers go on meanwhile, 3.6 s at most at 1 token an hour.
		if r[2] > before+1000 || r[2] < before-1000 {
			t.Fatalf("back by %v: level %d became %d", back, before, r[2])
		}
	}
	r := s.Run(single(b))
	if r[0] != 1 {
		t.Fatalf("a covered call after the clock went back: got %v, want a grant", r)
	}
	b.Amount = 10 * token
	if r := s.Run(look(b)); r[3] <= 0 || r[3] > 11*b.Period {
		t.Fatalf("wait after the clock went back: got %d µs, want at most 10 periods and the jump, cut to 1 period", r[3])
	}
}

// giveBack: B6.
func giveBack(t *testing.T, s Raw) {
	b := Bucket{Key: "give", Limit: token, Period: 3600 * second, Burst: 10 * token, Amount: 4 * token}
	s.Run(single(b))
	if r := s.Run(adjust(b, 4*token)); r[2] != b.Burst {
		t.Fatalf("take 4, give 4 back: level %d, want %d", r[2], b.Burst)
	}
	s.Run(single(b))
	for range 3 {
		if r := s.Run(adjust(b, 4*token)); r[2] > b.Burst {
			t.Fatalf("repeated give-back: level %d above the burst", r[2])
		}
	}
	r := s.Run(adjust(b, -25*token))
	if r[2] != -15*token {
		t.Fatalf("charging 25 to a full bucket of 10: level %d, want a debt of 15", r[2])
	}
	b.Amount = 0
	if r := s.Run(single(b)); r[0] != 0 || r[3] < 14*3600*second {
		t.Fatalf("a free call on a debt of 15: got %v, want refused for about 15 h", r)
	}
}

// aboveBurst: B7.
func aboveBurst(t *testing.T, s Raw) {
	b := Bucket{Key: "above", Limit: token, Period: 3600 * second, Burst: 10 * token, Amount: 11 * token}
	if r := s.Run(single(b)); r[0] != 0 || r[3] != -1 || r[2] != b.Burst {
		t.Fatalf("reject: got %v, want refused for ever with the bucket full", r)
	}
	b.MaxDebt = token
	if r := s.Run(single(b)); r[0] != 1 || r[2] != -token {
		t.Fatalf("debt: got %v, want a grant from the full bucket down to -1", r)
	}
	if r := s.Run(single(b)); r[0] != 0 || r[3] < 10*3600*second {
		t.Fatalf("debt again: got %v, want refused until it is full", r)
	}
	b = Bucket{Key: "blocked", Limit: 0, Period: second, Burst: 0}
	if r := s.Run(single(b)); r[0] != 0 || r[3] != -1 {
		t.Fatalf("limit 0: got %v, want refused for ever", r)
	}
}

// fence: a call after its not-after takes nothing; a settlement then charges
// and releases, but gives nothing back.
func fence(t *testing.T, s Raw) {
	b := Bucket{Key: "fence", Limit: token, Period: 3600 * second, Burst: 10 * token, Amount: token}
	now := s.Run(look(b))[1]
	c := single(b)
	c.NotAfter = now - 1
	if r := s.Run(c); r[0] != 3 || r[1] < now {
		t.Fatalf("after the fence: got %v, want status 3 and the time", r)
	}
	c.NotAfter = now + 3600*second
	if r := s.Run(c); r[0] != 1 {
		t.Fatalf("before the fence: got %v, want a grant", r)
	}
	late := adjust(b, token)
	late.NotAfter = now - 1
	if r := s.Run(late); r[0] != 2 || r[2] > 9*token+1000 {
		t.Fatalf("a give-back after its fence: got %v, want charges alone and the level still 9", r)
	}
	late = adjust(b, -token)
	late.NotAfter = now - 1
	if r := s.Run(late); r[0] != 2 || r[2] > 8*token+1000 {
		t.Fatalf("a charge after the fence: got %v, want the level at 8", r)
	}
}
