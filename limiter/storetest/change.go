package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Changes runs every property of limits that change, or on which replicas
// disagree, on servers that open makes, one for each.
func Changes(t *testing.T, open func(t *testing.T) Raw) {
	for _, p := range []struct {
		name string
		run  func(*testing.T, Raw)
	}{
		{"B8-changed-burst", changedBurst}, {"debt-is-not-scaled", changedDebt}, {"raised-within-a-second", raised},
		{"flapping-gains-nothing", flapping}, {"mixed-takes-the-smaller", mixed(20 * token)},
		{"mixed-and-refused", mixed(token / 5)}, {"refused-says-it-once", saysOnce},
	} {
		t.Run(p.name, func(t *testing.T) { p.run(t, open(t)) })
	}
}

// changedBurst: B8, and the level in proportion.
func changedBurst(t *testing.T, s Raw) {
	b := Bucket{Key: "changed", Limit: token, Period: 3600 * second, Burst: 100 * token, Amount: 10 * token}
	s.Run(single(b)) // 90 left
	b.Burst = 20 * token
	if r := s.Run(single(b)); r[0] != 1 || r[2] < 8*token || r[2] > 8*token+1000 { // 18 s at 1 token an hour
		t.Fatalf("burst lowered to 20: got %v, want a grant of 90 in 100, which leaves 8", r)
	}
	b.Burst, b.Amount = 1000*token, 0
	if r := s.Run(look(b)); r[2] > 9*token {
		t.Fatalf("burst raised to 1000: level %d, want the 8 that were there", r[2])
	}
}

// changedDebt: what is owed stays owed, in whole.
func changedDebt(t *testing.T, s Raw) {
	b := Bucket{Key: "owes", Limit: token, Period: 3600 * second, Burst: 100 * token}
	s.Run(adjust(b, -115*token))
	b.Burst = 10 * token
	if r := s.Run(look(b)); r[2] < -15*token || r[2] > -14*token {
		t.Fatalf("a debt of 15 after the burst was lowered: %d", r[2])
	}
}

// raised: a bucket that refills once a day and is empty has the new rate a second
// after the first ask, refused as it is, and nothing of the time before.
func raised(t *testing.T, s Raw) {
	b := Bucket{Key: "raised", Limit: token, Period: 86_400 * second, Burst: token, Amount: token}
	s.Run(single(b))
	s.Wait(200 * time.Millisecond)
	b.Limit, b.Period, b.Burst = 100*token, second, 100*token
	r := s.Run(single(b))
	asked, pass := r[1], r[1]+r[3]
	if r[0] != 0 || r[3] > second+second/100 {
		t.Fatalf("first ask after the raise: got %v, want refused for at most 1.01 s", r)
	}
	for r[1] < pass { // tight
		if r[0] != 0 || r[3] != pass-r[1] {
			t.Fatalf("at %d: got %v, want refused for %d", r[1], r, pass-r[1])
		}
		s.Wait(max(1, time.Duration(r[3]-1)) * time.Microsecond)
		r = s.Run(single(b))
	}
	if most := (r[1] - asked - second) * 100; r[0] != 1 || r[2] > most {
		t.Fatalf("a second after the raise: got %v, want a grant from what has flowed since, less than %d u", r, most)
	}
}

// flapping: a bucket that is lowered and raised again has no more than if it had
// stayed as it was, also where the small one was full and might be forgotten.
func flapping(t *testing.T, s Raw) {
	large := Bucket{Key: "flaps", Limit: 100 * token, Period: 1000 * second, Burst: 100 * token, Amount: 100 * token}
	small := Bucket{Key: "flaps", Limit: 100 * token, Period: second, Burst: token, Amount: token / 100}
	s.Run(single(large))
	start := s.Run(look(large))[1]
	for range 3 {
		s.Run(single(small))
		s.Wait(30 * time.Millisecond)
		s.Run(single(small))
		s.Wait(1100 * time.Millisecond)
		large.Amount = 0
		r := s.Run(single(large))
		if most := token + (r[1]-start)/10 + 1; r[2] > most {
			t.Fatalf("lowered and raised again after %d µs: level %d, at most %d", r[1]-start, r[2], most)
		}
	}
}

// mixed: a greedy replica with the larger limit and one with the smaller, which
// asks now and then and may always be refused, together stay within the smaller.
func mixed(limit int64) func(t *testing.T, s Raw) {
	return func(t *testing.T, s Raw) { mixedAt(t, s, limit) }
}

func mixedAt(t *testing.T, s Raw, limit int64) {
	rnd := Seeded(t)
	large := Bucket{Key: "mixed", Limit: 1000 * token, Period: second, Burst: 200 * token, Amount: token}
	small := Bucket{Key: "mixed", Limit: limit, Period: second, Burst: 5 * token, Amount: token}
	s.Run(single(large)) // as it was before the rollout
	r := s.Run(single(small))
	start, taken := r[1], int64(token)
	last, next := start, start
	before, still := start, int64(0) // µs: the ask before, and how long nobody asked, so that a full bucket took nothing
	ask := func(b Bucket, inc string) (now int64) {
		c := single(b)
		c.Inc = inc
		r := s.Run(c)
		if r[0] == 1 {
			taken += b.Amount
		}
		if r[1]-before > second/10 {
			still += r[1] - before
		}
		before = r[1]
		// Refused, the smaller need not be heard within half a hold, lest it write
		// with every ask. Asked for later, on a machine that stood still, more may begin.
		if r[1]-last > second/2 {
			start, taken, still = r[1], 0, 0
			if inc == "b1" {
				return r[1]
			}
		}
		if most := small.Burst + (r[1]-start)*limit/second + token; taken > most {
			t.Fatalf("%d u admitted in %d µs, at most %d by the smaller limit", taken, r[1]-start, most)
		}
		return r[1]
	}
	for now, end := start, start+30*second; now < min(start+5*second/2, end); {
		large.Amount = (1 + rnd.Int64N(3)) * token
		now = ask(large, "b1")
		if now >= next { // up to 0.45 s apart
			last = ask(small, "a1")
			next = last + second/10 + rnd.Int64N(35*second/100)
		}
		s.Wait(time.Duration(1+rnd.Int64N(20)) * time.Millisecond)
	}
	if least := (last-start-still)*limit/second*3/4 - token; last > start && taken < least {
		t.Fatalf("%d u admitted in %d µs, %d of them still, at least %d", taken, last-start, still, least)
	}
	said := s.Run(single(large))[1]
	for now := said; now < said+3*second/2; now = s.Run(single(large))[1] { // alone, it gets its own
		s.Wait(20 * time.Millisecond)
	}
	large.Amount = 100 * token
	s.Wait(200 * time.Millisecond)
	if r := s.Run(single(large)); r[0] != 1 {
		t.Fatalf("1.7 s after it asked, and the smaller no more: got %v, want a grant by the larger", r)
	}
}

// saysOnce: in a disagreement a refused ask says so, once; then B3 holds again.
func saysOnce(t *testing.T, s Raw) {
	b := Bucket{Key: "says", Limit: token, Period: 3600 * second, Burst: 10 * token, Amount: 10 * token}
	s.Run(single(b))
	b.Limit = 2 * token
	s.Run(single(b))
	before := s.State()
	if r := s.Run(single(b)); r[0] != 0 {
		t.Fatalf("an empty bucket: got %v, want refused", r)
	}
	if after := s.State(); after != before {
		t.Fatalf("a second refusal changed the state\nbefore: %s\nafter:  %s", before, after)
	}
}

// Disagree is Twin for replicas of different limits, which change now and then:
// n calls of three replicas on two buckets, some of them far apart. Where slow
// is set, nothing expires meanwhile, for servers that do so by their own clock.
func Disagree(t *testing.T, s Raw, o Oracle, n int, slow bool) {
	rnd := Seeded(t)
	draw := func() Bucket {
		b := Bucket{
			Limit: (1 + rnd.Int64N(40)) * token, Period: []int64{second, 60 * second, 700_001}[rnd.IntN(3)],
			Burst: (1 + rnd.Int64N(30)) * token,
		}
		if slow {
			b.Period = []int64{second, 3600 * second}[rnd.IntN(2)] * 100
		}
		if rnd.IntN(20) == 0 {
			b.Limit, b.Burst = 0, 0
		}
		return b
	}
	limits := [3][2]Bucket{}
	for i := range limits {
		limits[i] = [2]Bucket{draw(), draw()}
	}
	for i := range n {
		who := rnd.IntN(len(limits))
		if rnd.IntN(25) == 0 {
			limits[who] = [2]Bucket{draw(), draw()}
			if rnd.IntN(2) == 0 { // a rollout ends
				limits[(who+1)%3], limits[(who+2)%3] = limits[who], limits[who]
			}
		}
		c := disagreeing(rnd, who, int64(i), limits[who])
		got := s.Run(c)
		if want := o.At(got[1], c); !slices.Equal(got, want) {
			t.Fatalf("call %d: %+v\ngot  %v\nwant %v", i, c, got, want)
		}
		switch {
		case rnd.IntN(25) == 0:
			s.Wait(time.Duration(rnd.Int64N(1200)) * time.Millisecond)
		case rnd.IntN(2) == 0:
			s.Wait(time.Duration(rnd.Int64N(40_000)) * time.Microsecond)
		}
	}
}

// disagreeing draws a call of one replica.
func disagreeing(rnd *rand.Rand, who int, seq int64, limits [2]Bucket) Call {
	c := Call{Op: []Op{Admit, Admit, Settle, Inspect}[rnd.IntN(4)], Inc: fmt.Sprintf("a%d", who), Seq: seq + 1, TTL: 1000}
	for i, b := range limits {
		b.Key, b.Amount = fmt.Sprintf("d%d", i), rnd.Int64N(8)*token
		if c.Op == Settle {
			b.Amount, b.MaxDebt = b.Amount-4*token, 1<<52
		}
		c.Buckets = append(c.Buckets, b)
	}
	return c
}
