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

// edited is a server on which one line of a script is another, which must be there
// once.
func edited(t *testing.T, script lua.Script, line, other string) *redis {
	r := newMini(t)
	r.edit = func(s lua.Script) string {
		if s.Name != script.Name {
			return s.Source
		}
		if strings.Count(s.Source, line) != 1 {
			t.Fatalf("no single line %q in %s", line, s.Name)
		}
		return strings.Replace(s.Source, line, other, 1)
	}
	return r
}

// TestPlain: the short way through admit says and stores, to the letter, what the
// general one does.
func TestPlain(t *testing.T) {
	const first, last = "local plain, now, time = ", "    end\n  end\n  return reply\nend\n"
	s := edited(t, lua.Admit, last, strings.Replace(last, "return", "call('SET', 'short', 1) return", 1))
	g := edited(t, lua.Admit, first, first+"false and ")
	tape := plainTape{rnd: storetest.Seeded(t), redis: s, seen: map[string]int{}}
	// A tape that has missed some rare outcome goes on a while.
	n := storetest.Effort(800)
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
	seen  map[string]int
}

// missed names something of which too little came.
func (p *plainTape) missed() string {
	for _, what := range []string{
		"alone, long", "alone, short", "together, long", "together, short", "short: refused", "short: granted",
		"short: overtaken", "short: too late", "short: granted after another", "short: in debt",
	} {
		if p.seen[what] < 3 {
			return what
		}
	}
	return ""
}

// next draws a call of up to four buckets and two counters a decision.
func (p *plainTape) next(i int64) storetest.Call {
	c := storetest.Call{Op: storetest.Admit, Inc: fmt.Sprintf("a%d", p.rnd.IntN(2)), Seq: 20*i + 60, TTL: 700}
	if p.rnd.IntN(8) == 0 {
		c.Seq -= p.rnd.Int64N(60)
	}
	if p.rnd.IntN(10) == 0 {
		c.Op = storetest.Settle
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
		if p.rnd.IntN(12) == 0 {
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
		c.Slots = append(c.Slots, storetest.Slot{Key: fmt.Sprint(from + j), Cap: 2 + p.rnd.Int64N(4), Held: held, Want: held + 1})
	}
}

// claim lets somebody wait for a turn at a bucket, now and then.
func (p *plainTape) claim(servers ...*redis) {
	key := fmt.Sprintf("hw:{hw}:p:user:%s%d:c", []string{"slow", "fast"}[p.rnd.IntN(2)], p.rnd.IntN(2))
	waits := p.rnd.IntN(20) == 0
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
		if one[0] == 1 && granted && i > 0 {
			p.seen["short: granted after another"]++
		}
		granted = granted || one[0] == 1
	}
}
