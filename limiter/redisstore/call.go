package redisstore

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/lua"
)

// States of a call. Exactly one of the two sides leaves waiting.
const (
	waiting   = iota
	answered  // the worker has; the caller reads reply and err
	abandoned // the caller has given up; the worker cleans up
)

// call is one script call on its way. The caller builds it, a worker runs it.
type call struct {
	script   *lua.Script
	keys     []string
	args     []string  // without the fence, which a fenced script has first and an admit elsewhere
	until    time.Time // the caller's deadline, and the fence
	probe    bool      // sent by watch
	document bool      // sent by Eval
	// home names the keys' slot (see hashTag): all keys of a call are of one, so calls
	// may only ride together in one script if their homes are equal.
	home   limiter.ID
	node   *client // where it goes, or was sent last
	asking bool    // its keys are on their way to node (an ASK reply)
	hops   int     // times it was sent again by redo

	state atomic.Int32
	done  chan struct{} // buffered: the worker never waits for the caller
	timer *time.Timer

	// Written by the worker before done, read by the caller after.
	reply  []int64
	values []any // in its place, of a script about documents (see Eval)
	err    *failure
	ran    ran // what is known when err != nil

	// Of an admit alone. The worker spells it, together with others (see group.go),
	// and undoes what it took when abandoned.
	take     limiter.Take
	wants    []int64
	seq      int64
	counted  bool
	inc      string        // incarnation
	ttl      int64         // ms
	notAfter int64         // the fence in Redis time, once known
	alone    bool          // with others it failed, and by itself it may not
	bids     []bid         // of a call for turns, in place of the above
	turns    limiter.Turns // its pool
	stock    stock         // the slots of that

	text argv
}

// ran is what an error tells about its call.
type ran uint8

const (
	ranUnknown ran = iota // sent, and no answer
	ranNot                // nothing ran
)

// argv collects the text of all keys and arguments in one buffer, so that a
// call costs one string instead of thirty.
type argv struct {
	home limiter.ID // of all keys
	buf  []byte
	ends []int
	list []string
}

func (a *argv) reset(home limiter.ID) { a.home, a.buf, a.ends = home, a.buf[:0], a.ends[:0] }

func (a *argv) str(s string) {
	a.buf = append(a.buf, s...)
	a.ends = append(a.ends, len(a.buf))
}

func (a *argv) int(n int64) {
	a.buf = strconv.AppendInt(a.buf, n, 10)
	a.ends = append(a.ends, len(a.buf))
}

// key appends hw:{<tag>}:<kind>:<dimension>:<id>.
func (a *argv) key(kind byte, d limiter.Dimension, id limiter.ID) {
	a.buf = append(a.buf, "hw:{"...)
	a.buf = append(a.buf, hashTag(a.home)...)
	a.buf = append(a.buf, "}:"...)
	a.buf = append(a.buf, kind, ':')
	a.buf = append(a.buf, d...)
	a.buf = append(a.buf, ':')
	a.str(string(id))
}

func (a *argv) bucketKey(id limiter.BucketID) {
	kind := byte('b')
	if id.Class == limiter.Tokens {
		kind = 't'
	}
	a.key(kind, id.Dimension, id.ID)
}

// poolKey appends hw:{hw}:p:<dimension>:<id>:<part>: t tags, c claims.
func (a *argv) poolKey(id limiter.BucketID, part byte) {
	a.key('p', id.Dimension, id.ID)
	a.buf = append(a.buf, ':', part)
	a.ends[len(a.ends)-1] = len(a.buf)
}

// inTurn counts the charges that claims may refuse.
func inTurn(t limiter.Take) (n int) {
	for _, ch := range t.Charges {
		if ch.InTurn {
			n++
		}
	}
	return n
}

// rate appends what every script wants of a bucket. A charge above the burst
// is never granted (max_debt 0); a settlement may owe without bound.
func (a *argv) rate(r limiter.Rate, amount, maxDebt int64) {
	a.int(micro(r.Limit))
	a.int(max(1, r.Per.Microseconds()))
	a.int(micro(r.Burst))
	a.int(micro(amount))
	a.int(maxDebt)
}

// strings returns the collected texts; they share one new string.
func (a *argv) strings() []string {
	all := string(a.buf)
	a.list = a.list[:0]
	start := 0
	for _, end := range a.ends {
		a.list = append(a.list, all[start:end])
		start = end
	}
	return a.list
}

// maxMicro is the largest amount that scripts can hold: doubles are exact up to
// 2^53. It is 9e9 tokens.
const maxMicro = 1<<53 - 1

// micro converts whole tokens, saturating at ±maxMicro.
func micro(tokens int64) int64 {
	const most = maxMicro / 1_000_000
	return min(most, max(-most, tokens)) * 1_000_000
}

// ask makes c an admit of t. It copies t, for its caller may give up while
// the worker still reads.
func (c *call) ask(t limiter.Take, inc string, ttl int64) {
	c.script, c.inc, c.ttl = &lua.Admit, inc, ttl
	c.take.Charges = append(c.take.Charges[:0], t.Charges...)
	c.take.Slots = append(c.take.Slots[:0], t.Slots...)
	c.wants = append(c.wants[:0], make([]int64, len(t.Slots))...)
}

// buildInspect fills in an inspect of t.
func (c *call) buildInspect(t limiter.Take, inc string) {
	a := &c.text
	a.reset(c.home)
	c.buildKeys(t)
	a.str(inc)
	a.int(int64(len(t.Charges)))
	for _, ch := range t.Charges {
		a.rate(ch.Rate, ch.Cost, 0)
	}
	c.cut(len(t.Charges) + len(t.Slots))
	c.script = &lua.Inspect
}

// buildLease fills in a lease call.
func (c *call) buildLease(inc string, seq, ttl int64, sts []statement) {
	a := &c.text
	a.reset(c.home)
	for _, st := range sts {
		a.key('l', st.id.Dimension, st.id.ID)
	}
	a.str(inc)
	a.int(seq)
	a.int(ttl)
	for _, st := range sts {
		a.int(st.held)
		a.int(st.want)
	}
	c.cut(len(sts))
	c.script = &lua.Lease
}

// buildSettle fills in an attempt of a settlement.
func (c *call) buildSettle(p *settlement, inc string, ttl int64, sts []statement) {
	a := &c.text
	a.reset(c.home)
	keys := len(p.adjust) + len(sts)
	for _, adj := range p.adjust {
		a.bucketKey(adj.Bucket)
	}
	for _, st := range sts {
		a.key('l', st.id.Dimension, st.id.ID)
	}
	for _, adj := range p.adjust {
		if adj.Tenant != "" {
			a.poolKey(adj.Bucket, 't')
			keys++
		}
	}
	a.str(inc)
	a.int(p.seq)
	a.int(ttl)
	a.int(int64(len(p.adjust)))
	a.int(p.retry)
	a.int(int64(len(sts)))
	for _, adj := range p.adjust {
		a.rate(adj.Rate, adj.Delta, maxMicro)
	}
	for _, st := range sts {
		a.int(st.held)
		a.int(st.want)
	}
	for i, adj := range p.adjust {
		if adj.Tenant != "" {
			a.int(int64(i + 1))
			a.str(string(adj.Tenant))
			a.float(adj.Weight)
		}
	}
	c.cut(keys)
	c.script = &lua.Settle
}

func (c *call) buildKeys(t limiter.Take) {
	for _, ch := range t.Charges {
		c.text.bucketKey(ch.Bucket)
	}
	for _, sl := range t.Slots {
		c.text.key('l', sl.Slot.Dimension, sl.Slot.ID)
	}
}

func (c *call) cut(keys int) {
	all := c.text.strings()
	c.keys, c.args = all[:keys], all[keys:]
}
