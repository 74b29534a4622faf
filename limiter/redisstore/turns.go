package redisstore

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/lua"
)

// bid is one bid of a call for turns, with what its slots state.
type bid struct {
	limiter.Bid
	wants   []int64
	seq     int64
	counted bool
}

// stock is a call's pool where it is the slots of a counter: who may be granted
// them is counted as pending, one by one, like those of a Take.
type stock struct {
	ask     []limiter.Slot // the same slot, once for each that may be granted
	wants   []int64
	held    int64 // what the call states
	seq     int64
	counted bool
}

// States of a bid in a reply of lua/pool.lua, where they differ from
// limiter.BidState.
const bidOvertaken = 3

// statusForgotten is that of a call in a reply of lua/prelude_guard.lua.
const statusForgotten = 4

// Turns implements limiter.Store. A call that was overtaken on a counter, or that
// a reply proves to have come before its fence by mistake, is sent again, as in
// Admit.
func (s *Store) Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	start := time.Now()
	until, err := s.begin(ctx, start)
	if err != nil {
		return limiter.TurnsVerdict{}, err
	}
	defer since(s.metrics.turnsTime, start)
	if s.opts.Layout == LayoutTenant {
		return s.turnsParts(ctx, t, until)
	}
	return s.turnsPart(ctx, "", t, until)
}

// turnsPart is Turns with all keys of one home.
func (s *Store) turnsPart(ctx context.Context, home limiter.ID, t limiter.Turns, until time.Time) (limiter.TurnsVerdict, error) {
	start := time.Now()
	if err := s.router.refusal(home); err != nil {
		return limiter.TurnsVerdict{}, err
	}
	for range resendMost {
		guard := ""
		if t.Slots.ID != "" && home == "" {
			if guard = s.epochs.current(time.Now()); guard == "" {
				return limiter.TurnsVerdict{}, errForgotten
			}
		}
		c := s.calls.Get().(*call)
		c.home, c.until, c.stock, c.bids = home, until, s.drawStock(t), s.draw(t.Bids)
		c.turns = limiter.Turns{Pool: t.Pool, Slots: t.Slots, Rate: t.Rate}
		c.buildPool(t, s.inc, s.ttl, guard)
		if err := s.exchange(ctx, c); err != nil {
			return limiter.TurnsVerdict{}, err
		}
		if status := c.reply[0]; status != statusGranted { // overtaken, or too late by a fence that was too early
			s.dropBids(c)
			s.release(c)
			if status == statusForgotten {
				s.epochs.soon()
				return limiter.TurnsVerdict{}, errForgotten
			}
			s.metrics.resent.Inc()
			continue
		}
		v := s.turnsVerdict(c)
		s.release(c)
		return v, nil
	}
	return limiter.TurnsVerdict{}, s.fail(errOvertaken, start)
}

// draw states the wants of every bid. Of several that want a slot of one
// counter, each counts those before it as pending.
func (s *Store) draw(list []limiter.Bid) []bid {
	bids := make([]bid, len(list))
	for i, b := range list {
		bids[i] = bid{Bid: b, wants: make([]int64, len(b.Rest.Slots))}
		bids[i].seq, bids[i].counted = s.slots.draw(b.Rest.Slots, bids[i].wants)
	}
	return bids
}

// drawStock states what this replica holds of the slots that t is about, if it
// is, and counts as pending what may be granted.
func (s *Store) drawStock(t limiter.Turns) (st stock) {
	if t.Slots.ID == "" {
		return st
	}
	n := int64(0)
	for _, b := range t.Bids {
		n += b.Cost
	}
	st.ask = slices.Repeat([]limiter.Slot{{Slot: t.Slots, Cap: int(t.Rate.Burst)}}, int(min(n, t.Rate.Burst)))
	st.wants = make([]int64, len(st.ask))
	if n == 0 { // it withdraws a claim, but still is about slots
		st.seq, _ = s.slots.state(nil)
		return st
	}
	st.seq, st.counted = s.slots.draw(st.ask, st.wants)
	st.held = st.wants[0] - 1
	return st
}

// settleStock ends what drawStock began: granted slots are held, those left over
// no longer pending.
func (s *Store) settleStock(st stock, granted int64) {
	for i := range st.wants {
		st.wants[i] = st.held + granted
	}
	s.slots.granted(st.ask[:granted], st.wants[:granted], st.seq, st.counted)
	if s.slots.dropped(st.ask[granted:], st.counted, false) {
		s.outbox.poke()
	}
}

// buildPool fills in a call for turns, with the epoch by which it takes slots, if any.
func (c *call) buildPool(t limiter.Turns, inc string, ttl int64, guard string) {
	a := &c.text
	a.reset(c.home)
	if t.Slots.ID == "" {
		a.bucketKey(t.Pool)
		a.poolKey(t.Pool, 't')
		a.poolKey(t.Pool, 'c')
	} else {
		a.key('l', t.Slots.Dimension, t.Slots.ID)
		a.slotsKey(t.Slots, 't')
		a.slotsKey(t.Slots, 'c')
	}
	keys := 3
	for _, b := range c.bids {
		c.buildKeys(b.Rest)
		keys += len(b.Rest.Charges) + len(b.Rest.Slots)
	}
	c.script = &lua.Pool
	if guard != "" {
		c.script = &lua.Stock
		a.str(epochKeys[0])
		keys++
	}
	a.str(inc)
	a.int(ttl)
	a.int(t.Grace.Microseconds())
	a.int(micro(t.Rate.Limit))
	a.int(max(1, t.Rate.Per.Microseconds()))
	a.int(micro(t.Rate.Burst))
	a.int(int64(t.Most))
	a.int(t.Rest.Microseconds())
	a.int(micro(t.More))
	a.int(c.stock.seq)
	a.int(c.stock.held)
	a.int(int64(len(c.bids)))
	for _, b := range c.bids {
		a.str(string(b.Tenant))
		a.int(micro(b.Cost))
		a.float(b.Weight)
		a.float(b.Since)
		a.int(b.seq)
		a.int(int64(len(b.Rest.Charges)))
		a.int(int64(len(b.Rest.Slots)))
		for _, ch := range b.Rest.Charges {
			a.rate(ch.Rate, ch.Cost, 0)
		}
		for i, sl := range b.Rest.Slots {
			a.int(int64(sl.Cap))
			a.int(b.wants[i])
		}
	}
	if guard != "" {
		a.str(guard)
	}
	c.cut(keys)
}

// slotsKey appends hw:{hw}:s:<dimension>:<id>:<part>: t tags, c claims.
func (a *argv) slotsKey(id limiter.SlotID, part byte) {
	a.key('s', id.Dimension, id.ID)
	a.buf = append(a.buf, ':', part)
	a.ends[len(a.ends)-1] = len(a.buf)
}

func (a *argv) float(x float64) {
	a.buf = strconv.AppendFloat(a.buf, x, 'g', 17, 64)
	a.ends = append(a.ends, len(a.buf))
}

// turnsVerdict reads a reply of pool and settles the slot table with it.
func (s *Store) turnsVerdict(c *call) limiter.TurnsVerdict {
	r := c.reply
	v := limiter.TurnsVerdict{
		Wait: waitOf(r[2]), Bucket: waitOf(r[3]),
		Before: tag(r[4]), After: tag(r[5]), Bids: make([]limiter.BidVerdict, len(c.bids)),
	}
	if len(c.stock.ask) > 0 {
		s.settleStock(c.stock, c.taken())
	}
	at := 6
	for i, b := range c.bids {
		nb, nl := len(b.Rest.Charges), len(b.Rest.Slots)
		state, rest := r[at], r[at+3:]
		out := &v.Bids[i]
		out.State, out.Finish, out.Since = limiter.BidState(min(state, 2)), tag(r[at+1]), tag(r[at+2])
		if state == bidOvertaken { // nothing is wrong with it: bid again
			out.State = limiter.BidWaits
		}
		if out.State != limiter.BidWaits {
			out.Rest = limiter.Verdict{OK: out.State == limiter.BidGranted, Charges: levels(rest, nb), Full: make([]bool, nl)}
			for j := range nl {
				out.Rest.Full[j] = rest[2*nb+j] == leaseFull
			}
		}
		if out.State == limiter.BidGranted {
			s.slots.granted(b.Rest.Slots, b.wants, b.seq, b.counted)
		} else if s.slots.dropped(b.Rest.Slots, b.counted, false) {
			s.outbox.poke()
		}
		at += 3 + 2*nb + nl
	}
	return v
}

// dropBids ends a call for turns that nobody hears the answer of: what was
// granted is given back, the slots of the rest are no longer pending.
func (s *Store) dropBids(c *call) {
	answered := c.err == nil && c.reply[0] == statusGranted
	doubtful := c.err != nil && c.ran == ranUnknown
	s.dropStock(c, doubtful)
	at := 6
	for _, b := range c.bids {
		granted := answered && c.reply[at] == int64(limiter.BidGranted)
		switch {
		case granted:
			s.slots.granted(b.Rest.Slots, b.wants, b.seq, b.counted)
			s.metrics.late.Inc()
			s.Settle(turnBack(c.turns, b.Bid))
		case doubtful && b.counted && len(b.Rest.Slots) > 0 && time.Now().Before(c.until):
			s.outbox.doubt(clone(b.Rest).Slots, c.until)
		default:
			if s.slots.dropped(b.Rest.Slots, b.counted, doubtful) {
				s.outbox.poke()
			}
		}
		at += 3 + 2*len(b.Rest.Charges) + len(b.Rest.Slots)
	}
}

// dropStock does that for the slots of a pool, of which granted ones are held
// until they are given back.
func (s *Store) dropStock(c *call, doubtful bool) {
	st := c.stock
	switch {
	case len(st.ask) == 0:
	case doubtful && st.counted && time.Now().Before(c.until):
		s.outbox.doubt(st.ask, c.until)
	case c.err != nil:
		if s.slots.dropped(st.ask, st.counted, doubtful) {
			s.outbox.poke()
		}
	default:
		s.settleStock(st, c.taken())
	}
}

// taken is how much of the pool an answered call was granted.
func (c *call) taken() (cost int64) {
	at := 6
	for _, b := range c.bids {
		if c.reply[0] == statusGranted && c.reply[at] == int64(limiter.BidGranted) {
			cost += b.Cost
		}
		at += 3 + 2*len(b.Rest.Charges) + len(b.Rest.Slots)
	}
	return cost
}

// tag reads a number that parse kept as bits.
func tag(bits int64) float64 { return math.Float64frombits(uint64(bits)) }

// waitOf converts µs of a reply, of which -1 is never.
func waitOf(us int64) time.Duration {
	if us < 0 {
		return limiter.Never
	}
	return time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
}
