package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// part is what of a Take lies in one slot, and where that stood in the whole.
type part struct {
	home    limiter.ID
	take    limiter.Take
	charges []int // indices into the whole Take
	slots   []int
}

// partsOf splits a Take by home: those of tenants first, as they stand there,
// the shared one last.
func partsOf(t limiter.Take) (parts []*part) {
	shared := &part{}
	find := func(home limiter.ID) *part {
		if home == "" {
			return shared
		}
		for _, p := range parts {
			if p.home == home {
				return p
			}
		}
		parts = append(parts, &part{home: home})
		return parts[len(parts)-1]
	}
	for i, ch := range t.Charges {
		p := find(ch.Bucket.Home)
		p.take.Charges, p.charges = append(p.take.Charges, ch), append(p.charges, i)
	}
	for i, sl := range t.Slots {
		p := find(sl.Slot.Home)
		p.take.Slots, p.slots = append(p.take.Slots, sl), append(p.slots, i)
	}
	if len(shared.charges)+len(shared.slots) > 0 || len(parts) == 0 {
		parts = append(parts, shared)
	}
	return parts
}

// blank is a verdict on t in which nobody refuses and nothing is known.
func blank(t limiter.Take) limiter.Verdict {
	return limiter.Verdict{OK: true, Charges: make([]limiter.ChargeVerdict, len(t.Charges)), Full: make([]bool, len(t.Slots))}
}

// into puts the part's verdict at its places in the whole.
func (p *part) into(whole *limiter.Verdict, v limiter.Verdict) {
	whole.OK = whole.OK && v.OK
	for i, at := range p.charges {
		whole.Charges[at] = v.Charges[i]
	}
	for i, at := range p.slots {
		whole.Full[at] = v.Full[i]
	}
}

// restore corrects the levels told of a part that was granted and given back.
func (p *part) restore(whole *limiter.Verdict) {
	for i, at := range p.charges {
		ch := p.take.Charges[i]
		whole.Charges[at].Remaining = min(ch.Rate.Burst, whole.Charges[at].Remaining+ch.Cost)
	}
}

// admitParts is an Admit of keys of several homes: one call after the other,
// inside one budget. A refusal or a failure gives back what those before took:
// as a settlement, so at most once, and never above what is right. Between the
// two a part holds what nobody uses: that admits less for a moment, never more.
//
// So that the caller hears of the longest wait, as of one call, the parts behind
// a refusal are looked at without taking, as far as the budget reaches.
func (s *Store) admitParts(ctx context.Context, t limiter.Take, until time.Time) (limiter.Verdict, error) {
	parts := partsOf(t)
	if len(parts) == 1 {
		return s.admitPart(ctx, parts[0].home, t, until)
	}
	whole := blank(t)
	for i, p := range parts {
		v, err := s.admitPart(ctx, p.home, p.take, until)
		if err == nil && v.OK {
			p.into(&whole, v)
			continue
		}
		for _, taken := range parts[:i] {
			s.metrics.compensated.Inc()
			s.Settle(giveBack(taken.take))
			taken.restore(&whole)
		}
		if err != nil {
			return limiter.Verdict{}, err
		}
		p.into(&whole, v)
		for _, rest := range parts[i+1:] {
			if v, err := s.peekPart(ctx, rest.home, rest.take, until); err == nil {
				rest.into(&whole, v)
			}
		}
		return whole, nil
	}
	return whole, nil
}

// peekParts is a Peek of keys of several homes.
func (s *Store) peekParts(ctx context.Context, t limiter.Take, until time.Time) (limiter.Verdict, error) {
	whole := blank(t)
	for _, p := range partsOf(t) {
		v, err := s.peekPart(ctx, p.home, p.take, until)
		if err != nil {
			return limiter.Verdict{}, err
		}
		p.into(&whole, v)
	}
	return whole, nil
}

// settlementPart is what of a Settlement lies in one slot.
type settlementPart struct {
	home       limiter.ID
	settlement limiter.Settlement
}

// partsOfSettlement splits by home. Each part is settled exactly once, or as
// nearly as its own slots can witness.
func partsOfSettlement(f limiter.Settlement) (parts []settlementPart) {
	find := func(home limiter.ID) *limiter.Settlement {
		for i := range parts {
			if parts[i].home == home {
				return &parts[i].settlement
			}
		}
		parts = append(parts, settlementPart{home: home})
		return &parts[len(parts)-1].settlement
	}
	for _, a := range f.Adjust {
		p := find(a.Bucket.Home)
		p.Adjust = append(p.Adjust, a)
	}
	for _, id := range f.Free {
		p := find(id.Home)
		p.Free = append(p.Free, id)
	}
	return parts
}

// turnsParts is Turns where a bid's Rest may lie elsewhere than the pool: first
// the turn, with what of Rest lies beside the pool, then the remainder for each
// bid that had its turn, side by side, all inside one budget. Where that is
// refused, the turn is given back, bucket and tag together, and the bid is
// blocked.
func (s *Store) turnsParts(ctx context.Context, t limiter.Turns, until time.Time) (limiter.TurnsVerdict, error) {
	home := t.Home()
	near, far := make([]part, len(t.Bids)), make([]limiter.Take, len(t.Bids))
	places := make([]part, len(t.Bids))
	call := t
	call.Bids = make([]limiter.Bid, len(t.Bids))
	for i, b := range t.Bids {
		for _, p := range partsOf(b.Rest) {
			if p.home == home {
				near[i] = *p
				continue
			}
			far[i].Charges, far[i].Slots = append(far[i].Charges, p.take.Charges...), append(far[i].Slots, p.take.Slots...)
			places[i].charges, places[i].slots = append(places[i].charges, p.charges...), append(places[i].slots, p.slots...)
		}
		call.Bids[i] = b
		call.Bids[i].Rest = near[i].take
	}
	v, err := s.turnsPart(ctx, home, call, until)
	if err != nil {
		return v, err
	}
	var wg sync.WaitGroup
	for i := range v.Bids {
		out := &v.Bids[i]
		if out.State == limiter.BidWaits {
			continue
		}
		whole := blank(t.Bids[i].Rest)
		near[i].into(&whole, out.Rest)
		out.Rest = whole
		if out.State == limiter.BidGranted && len(far[i].Charges)+len(far[i].Slots) > 0 {
			wg.Go(func() { s.finishTurn(ctx, t, call.Bids[i], out, far[i], &places[i], until) })
		}
	}
	wg.Wait()
	return v, nil
}

// finishTurn takes what a granted bid needs elsewhere.
func (s *Store) finishTurn(ctx context.Context, t limiter.Turns, b limiter.Bid, out *limiter.BidVerdict,
	far limiter.Take, places *part, until time.Time,
) {
	v, err := s.admitParts(ctx, far, until)
	if err == nil {
		places.into(&out.Rest, v)
		if v.OK {
			return
		}
	}
	s.metrics.compensated.Inc()
	s.Settle(turnBack(t, b))
	out.State, out.Rest.OK = limiter.BidBlocked, false
	if err != nil {
		out.State, out.Err = limiter.BidWaits, err
	}
	if t.Slots.ID == "" { // its tag is given back as well
		out.Finish -= float64(b.Cost) / b.Weight
	}
}

// turnBack is the settlement that undoes a granted bid; of slots, all but its tag.
func turnBack(t limiter.Turns, b limiter.Bid) limiter.Settlement {
	undo := giveBack(b.Rest)
	if t.Slots.ID != "" {
		undo.Free = slices.Concat(undo.Free, slices.Repeat([]limiter.SlotID{t.Slots}, int(b.Cost)))
		return undo
	}
	undo.Adjust = append(undo.Adjust, limiter.Adjustment{
		Bucket: t.Pool, Rate: t.Rate, Delta: b.Cost, Tenant: b.Tenant, Weight: b.Weight,
	})
	return undo
}
