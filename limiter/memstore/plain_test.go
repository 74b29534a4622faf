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

// edited is a server on which one piece of each of some scripts is another. It must
// be there once.
func edited(t *testing.T, edits map[string][2]string) *redis {
	r := newMini(t)
	r.edit = func(s lua.Script) string {
		e, ok := edits[s.Name]
		if !ok {
			return s.Source
		}
		if strings.Count(s.Source, e[0]) != 1 {
			t.Fatalf("not once %q in %s", e[0], s.Name)
		}
		return strings.Replace(s.Source, e[0], e[1], 1)
	}
	return r
}

// TestPlain: the short ways through admit and lease say and store, to the letter,
// what the general ones do.
func TestPlain(t *testing.T) {
	const last, told = "  end\n  return reply\nend\n", "  end\n  call('SET', 'short', 1)\n  return reply\nend\n"
	s := edited(t, map[string][2]string{lua.Admit.Name: {last, told}, lua.Lease.Name: {last, told}})
	const admit, lease = "local plain, now, time = ", "if plain then\n  local reply, lapse, seq = "
	g := edited(t, map[string][2]string{
		lua.Admit.Name: {admit, admit + "false and "},
		lua.Lease.Name: {lease, "plain = false\n" + lease},
	})
	tape := plainTape{rnd: storetest.Seeded(t), redis: s, seen: map[string]int{}}
	// A tape that has missed some rare outcome goes on a while.
	n := storetest.Effort(800)
	tape.least = n / 250
	for i := 0; i < n || i < 10*n && tape.missed() != ""; i++ {
		c := tape.next(int64(i))
		tape.claim(s, g)
		got, want := s.Run(c), g.Run(c)
		if !slices.Equal(got, want) {
			t.Fatalf("call %d: %+v\ngot  %v\nwant %v", i, c, got, want)
		}
		tape.saw(c, got, s.do("DEL", "short").(int64) == 1)
		if got, want := s.State(), g.State(); got != want {
			t.Fatalf("call %d: %+v: stored\n%s\nwant\n%s", i, c, got, want)
		}
		tape.last = c.Seq
		pause := time.Duration(tape.rnd.Int64N(400_000)) * time.Microsecond
		switch tape.rnd.IntN(40) {
		case 0:
			pause = -pause / 8
		case 1:
			pause = 700 * time.Millisecond // to the ms in which the last entries expire
		}
		s.Wait(pause)
		g.Wait(pause)
	}
	if missed := tape.missed(); missed != "" {
		t.Errorf("%s: never, in %v: this tape shows little", missed, tape.seen)
	}
}

// plainTape draws calls, and counts what came of them.
type plainTape struct {
	rnd   *rand.Rand
	redis *redis // tells the time
	last  int64  // sequence of the call before
	seen  map[string]int
	least int // of everything, for the tape to be worth something
}

// missed names something of which too little came.
func (p *plainTape) missed() string {
	for _, what := range []string{
		"alone, long", "alone, short", "together, long", "together, short", "short: refused", "short: granted",
		"short: overtaken", "short: too late", "short: granted after another", "short: in debt", "short: claimed",
		"lease: long", "lease: more", "lease: the same", "lease: less", "lease: none", "lease: none of all",
	} {
		if p.seen[what] < p.least {
			return what
		}
	}
	return ""
}

// next draws a call of up to four buckets and two counters a decision.
func (p *plainTape) next(i int64) storetest.Call {
	inc := p.rnd.IntN(2)
	c := storetest.Call{Op: storetest.Admit, Inc: fmt.Sprintf("a%d", inc), Seq: 20*i + 60, TTL: []int64{700, 350}[inc]}
	if p.rnd.IntN(8) == 0 {
		c.Seq -= p.rnd.Int64N(60)
	}
	switch p.rnd.IntN(10) {
	case 0:
		c.Op = storetest.Settle
	case 1, 2:
		c.Op = storetest.Lease
		if p.rnd.IntN(5) == 0 {
			c.Seq = p.last // as if it were sent twice
		}
		p.fill(&c, nil, 1+p.rnd.IntN(3), false)
		return c
	}
	var kinds []int
	for kind := range 4 {
		if p.rnd.IntN(5) < 2 {
			kinds = append(kinds, kind)
		}
	}
	inTurn := p.rnd.IntN(4) == 0
	p.fill(&c, kinds, p.rnd.IntN(3), inTurn)
	if c.Op == storetest.Settle || p.rnd.IntN(2) == 0 {
		return c
	}
	for d := range 1 + p.rnd.Int64N(6) {
		also := storetest.Call{Op: storetest.Admit, Inc: c.Inc, TTL: c.TTL, Seq: c.Seq + 1 + d}
		if p.rnd.IntN(3) == 0 {
			also.Seq -= 1 + p.rnd.Int64N(4) // its call was spelled before that of another
		}
		if p.rnd.IntN(8) == 0 {
			also.NotAfter = p.redis.now.UnixMicro() + p.rnd.Int64N(3) - 2
		}
		if p.rnd.IntN(20) == 0 {
			slices.Reverse(kinds)
		}
		p.fill(&also, kinds, len(c.Slots), inTurn)
		c.Also = append(c.Also, also)
	}
	return c
}

// fill draws the buckets and counters of a decision. There are four kinds of
// buckets and two of each: one is often empty, one full within a second, one has
// rates that never come out even, and one is so large that products are rounded.
func (p *plainTape) fill(c *storetest.Call, kinds []int, slots int, inTurn bool) {
	for _, kind := range kinds {
		b := []storetest.Bucket{
			{Key: "slow", Limit: 3e6, Period: 1_000_003, Burst: 4e6},
			{Key: "fast", Limit: 1000e6, Period: 1e6, Burst: 50e6},
			{Key: "odd", Limit: 7_777_777, Period: 59_999_999, Burst: 3_333_333},
			{Key: "huge", Limit: 10, Period: 3, Burst: 8_765_432_109_876_543},
		}[kind]
		b.Key += fmt.Sprint(p.rnd.IntN(2))
		b.Amount, b.InTurn = p.rnd.Int64N(b.Burst/[]int64{3, 3, 3, 1}[kind]), inTurn
		switch n := p.rnd.IntN(200); {
		case n < 20:
			b.Amount = 0
		case n < 22:
			b.Amount, b.MaxDebt = b.Burst+p.rnd.Int64N(2e6), p.rnd.Int64N(2)*2e6
		case n == 23 && kind == 2:
			b.Limit += 1_111_111 // disagreed on for a while, and then as before
		case n == 28 && kind == 2:
			b.Limit -= 1_111_111 // and its key outlives the slower rate ever after
		case n >= 24 && n < 28:
			b.Limit = 0
		}
		if c.Op == storetest.Settle {
			b.MaxDebt, b.Amount, b.InTurn = 1e6, b.Amount*p.rnd.Int64N(3)-2*b.Amount, false
		}
		c.Buckets = append(c.Buckets, b)
	}
	from := p.rnd.IntN(2)
	for j := range slots {
		held := p.rnd.Int64N(4)
		sl := storetest.Slot{Key: fmt.Sprint(from + j), Cap: 2 + p.rnd.Int64N(4), Held: held, Want: held + 1}
		if c.Op == storetest.Lease {
			sl.Held = max(0, held-2)
			sl.Want = sl.Held + p.rnd.Int64N(2)
		}
		c.Slots = append(c.Slots, sl)
	}
}

// claim lets somebody wait for a turn at a bucket, now and then.
func (p *plainTape) claim(servers ...*redis) {
	key := fmt.Sprintf("hw:{hw}:p:user:%s%d:c", []string{"slow", "fast"}[p.rnd.IntN(2)], p.rnd.IntN(2))
	waits := p.rnd.IntN(3) == 0
	for _, r := range servers {
		if waits {
			r.do("SET", key, "claim")
		} else {
			r.do("DEL", key)
		}
	}
}

// saw counts what the reply to a call shows.
func (p *plainTape) saw(c storetest.Call, reply []int64, short bool) {
	if c.Op == storetest.Lease {
		p.lease(c, reply, short)
	}
	if c.Op != storetest.Admit {
		return
	}
	many := map[bool]string{false: "alone", true: "together"}[len(c.Also) > 0]
	p.seen[many+map[bool]string{false: ", long", true: ", short"}[short]]++
	if !short {
		return
	}
	granted := false
	for i, one := range storetest.Parted(c, reply) {
		p.seen["short: "+[]string{"refused", "granted", "overtaken", "too late"}[one[0]]]++
		for j := range c.Buckets {
			if one[2+2*j] < 0 {
				p.seen["short: in debt"]++
			}
		}
		if c.Buckets != nil && c.Buckets[0].InTurn && one[len(one)-1] == 1 {
			p.seen["short: claimed"]++
		}
		if one[0] == 1 && granted && i > 0 {
			p.seen["short: granted after another"]++
		}
		granted = granted || one[0] == 1
	}
}

// lease counts what the reply to a statement shows.
func (p *plainTape) lease(c storetest.Call, reply []int64, short bool) {
	if !short {
		p.seen["lease: long"]++
		return
	}
	for i := range c.Slots {
		before, now, total := reply[2+3*i], reply[3+3*i], reply[4+3*i]
		switch {
		case now > before:
			p.seen["lease: more"]++
		case now == before:
			p.seen["lease: the same"]++
		case now > 0:
			p.seen["lease: less"]++
		case total > 0:
			p.seen["lease: none"]++
		default:
			p.seen["lease: none of all"]++
		}
	}
}
