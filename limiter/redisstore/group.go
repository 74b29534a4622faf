package redisstore

import (
	"slices"

	"github.com/redis/rueidis"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/lua"
)

// Most of what one script call may do. Redis runs nothing else meanwhile: 16
// decisions about one bucket each hold it for 40 to 130 µs, and the call's fixed cost
// is spread thin enough by then.
const (
	groupMost = 16 // decisions
	groupKeys = 64 // keys of all of them; a decision with more goes alone
)

// shape is what decisions of one script call have in common.
type shape struct {
	home                   limiter.ID // keys of one script must be of one slot
	buckets, slots, claims int
}

func (sh shape) keys() int { return sh.buckets + sh.slots + sh.claims }

// width is the number of integers in the reply about one decision.
func (sh shape) width() int { return 1 + 2*sh.buckets + sh.slots + sh.claims }

// group is one script call: some decisions of one shape, in the order of the
// queue, or one call of any other script.
type group struct {
	calls []*call
	shape shape
	rates []limiter.Rate // of all its buckets, each once
	which []int64        // per bucket: its rate, from 1
	text  argv
	reply []int64
	sent  bool // there is a command of it in the pipeline
}

// groups are the script calls of one pipeline. Their buffers are used again.
type groups struct {
	list []*group
	used int
}

// all returns the groups in use.
func (gs *groups) all() []*group { return gs.list[:gs.used] }

// next returns an empty group.
func (gs *groups) next() *group {
	if gs.used == len(gs.list) {
		gs.list = append(gs.list, &group{})
	}
	g := gs.list[gs.used]
	gs.used++
	return g
}

// reset forgets all calls.
func (gs *groups) reset() {
	for _, g := range gs.all() {
		clear(g.calls)
		g.calls, g.shape = g.calls[:0], shape{}
	}
	gs.used = 0
}

// add puts a call into a group that has room for it.
func (gs *groups) add(c *call) {
	if c.script != &lua.Admit {
		g := gs.next()
		g.calls = append(g.calls, c)
		return
	}
	sh := c.shape()
	most := max(1, min(groupMost, groupKeys/max(1, sh.keys())))
	if c.alone {
		most = 0
	}
	// The newest first: the last of a shape is the one that has room. There are
	// few, unless every call is of a tenant with a slot of its own.
	for i := gs.used - 1; i >= 0; i-- {
		g := gs.list[i]
		if g.shape == sh && len(g.calls) < most && g.calls[0].script == c.script && !g.calls[0].alone {
			g.calls = append(g.calls, c)
			return
		}
	}
	g := gs.next()
	g.calls, g.shape = append(g.calls, c), sh
}

func (c *call) shape() shape {
	return shape{home: c.home, buckets: len(c.take.Charges), slots: len(c.take.Slots), claims: inTurn(c.take)}
}

// spell returns the keys and arguments of a group. They are valid until the
// next spell, but for their texts, which share one new string.
func (g *group) spell() (keys, args []string) {
	first := g.calls[0]
	if first.script != &lua.Admit {
		return first.keys, first.args
	}
	a := &g.text
	a.reset(first.home)
	g.spellKeys(a)
	a.str(first.inc)
	a.int(first.ttl)
	a.int(int64(g.shape.buckets))
	a.int(int64(g.shape.slots))
	a.int(int64(g.shape.claims))
	g.spellRates(a)
	bucket := 0
	for _, c := range g.calls {
		a.int(c.notAfter)
		a.int(c.seq)
		for _, ch := range c.take.Charges {
			a.int(g.which[bucket])
			a.int(micro(ch.Cost))
			bucket++
		}
		for i, sl := range c.take.Slots {
			a.int(int64(sl.Cap))
			a.int(c.wants[i])
		}
	}
	all, n := a.strings(), len(g.calls)*g.shape.keys()
	return all[:n], all[n:]
}

// spellKeys appends buckets, counters and claims of all calls, kind by kind.
func (g *group) spellKeys(a *argv) {
	for _, c := range g.calls {
		for i := range c.take.Charges {
			a.bucketKey(c.take.Charges[i].Bucket)
		}
	}
	for _, c := range g.calls {
		for _, sl := range c.take.Slots {
			a.key('l', sl.Slot.Dimension, sl.Slot.ID)
		}
	}
	if g.shape.claims == 0 {
		return
	}
	for _, c := range g.calls {
		for _, ch := range c.take.Charges {
			if ch.InTurn {
				a.poolKey(ch.Bucket, 'c')
			}
		}
	}
}

// spellRates appends the rates of all buckets, each once: there are as many as
// the configuration has, and numbers cost Redis more than anything else.
func (g *group) spellRates(a *argv) {
	g.rates, g.which = g.rates[:0], g.which[:0]
	for _, c := range g.calls {
		for i := range c.take.Charges {
			rate := c.take.Charges[i].Rate
			at := slices.Index(g.rates, rate)
			if at < 0 {
				at, g.rates = len(g.rates), append(g.rates, rate)
			}
			g.which = append(g.which, int64(at+1))
		}
	}
	a.int(int64(len(g.rates)))
	for _, r := range g.rates {
		a.int(micro(r.Limit))
		a.int(max(1, r.Per.Microseconds()))
		a.int(micro(r.Burst))
		a.int(0) // max_debt: a charge above the burst is never granted
	}
}

// fail ends all calls of a group in the same way.
func (g *group) fail(err *failure, ran ran) {
	for _, c := range g.calls {
		c.err, c.ran = err, ran
	}
}

// answer hands the reply to the group's calls: to each what it would have got
// alone, its status and the time in front. It returns the time, or 0.
func (g *group) answer(r rueidis.RedisResult) int64 {
	if g.calls[0].document {
		g.calls[0].evaluated(r)
		return 0
	}
	reply, err, ran := parse(g.reply[:0], r)
	g.reply = reply
	if err != nil {
		g.fail(err, ran)
		return 0
	}
	now, width := reply[1], g.shape.width()
	if first := g.calls[0]; first.script != &lua.Admit {
		first.reply, first.err = append(first.reply[:0], reply...), nil
		return now
	}
	if len(reply) != 2+len(g.calls)*width {
		g.fail(errReply, ranUnknown)
		return 0
	}
	for i, c := range g.calls {
		one := reply[2+i*width:][:width]
		c.reply, c.err = append(append(c.reply[:0], one[0], now), one[1:]...), nil
	}
	return now
}
