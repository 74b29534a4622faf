package memstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/lua"
)

// newGeneral is a server on which no admit is plain: it edits the one line of
// lua/prelude_plain.lua that decides it.
func newGeneral(t *testing.T) *redis {
	g := newMini(t)
	g.edit = func(s lua.Script) string {
		const line = "local plain, granted, now = "
		if s.Name == lua.Admit.Name && strings.Count(s.Source, line) != 1 {
			t.Fatalf("no single line %q in the script", line)
		}
		return strings.Replace(s.Source, line, line+"false and ", 1)
	}
	return g
}

// TestPlain: the short way through admit says and stores, to the letter, what the
// general one does.
func TestPlain(t *testing.T) {
	s, g, rnd := newMini(t), newGeneral(t), storetest.Seeded(t)
	granted, refused := 0, 0
	n := storetest.Effort(400)
	for i := range n {
		c := plainCall(rnd, int64(i))
		got, want := s.Run(c), g.Run(c)
		if !slices.Equal(got, want) {
			t.Fatalf("call %d: %+v\ngot  %v\nwant %v", i, c, got, want)
		}
		if got, want := s.State(), g.State(); got != want {
			t.Fatalf("call %d: %+v: stored\n%s\nwant\n%s", i, c, got, want)
		}
		if c.Op == storetest.Admit && got[0] == 1 {
			granted++
		} else if c.Op == storetest.Admit {
			refused++
		}
		pause := time.Duration(rnd.Int64N(400_000)) * time.Microsecond
		if rnd.IntN(40) == 0 {
			pause = -pause / 8
		}
		s.Wait(pause)
		g.Wait(pause)
	}
	if least := n / 10; granted < least || refused < least {
		t.Errorf("%d granted, %d refused: this tape shows little", granted, refused)
	}
}

// plainCall draws a decision about up to three buckets, of which one is often
// empty, one full within a second and one has rates that never come out even.
func plainCall(rnd *rand.Rand, i int64) storetest.Call {
	c := storetest.Call{Op: storetest.Admit, Inc: fmt.Sprintf("a%d", rnd.IntN(2)), Seq: i + 5, TTL: 700}
	if rnd.IntN(15) == 0 {
		c.Seq -= rnd.Int64N(5)
	}
	if rnd.IntN(20) == 0 {
		c.Op = storetest.Settle
	}
	for k, b := range []storetest.Bucket{
		{Key: "slow", Limit: 3e6, Period: 1_000_003, Burst: 4e6},
		{Key: "fast", Limit: 1000e6, Period: 1e6, Burst: 50e6},
		{Key: "odd", Limit: 7_777_777, Period: 59_999_999, Burst: 3_333_333},
	} {
		if b.Amount = rnd.Int64N(max(1, b.Burst/3)); rnd.IntN(2) == 0 {
			continue
		}
		switch n := rnd.IntN(100); {
		case n < 10:
			b.Amount = 0
		case n < 12:
			b.Amount, b.MaxDebt = b.Burst+rnd.Int64N(2e6), rnd.Int64N(2)*2e6
		case n == 13 && k == 2:
			b.Limit *= 2 // disagreed on for a while, and then as before
		case n == 14:
			b.Limit = 0
		}
		if c.Op == storetest.Settle {
			b.MaxDebt, b.Amount = 1e6, b.Amount*rnd.Int64N(3)-b.Amount
		}
		c.Buckets = append(c.Buckets, b)
	}
	for j := range rnd.IntN(3) {
		held := rnd.Int64N(3)
		c.Slots = append(c.Slots, storetest.Slot{Key: fmt.Sprint(j), Cap: 2 + rnd.Int64N(4), Held: held, Want: held + 1})
	}
	return c
}
