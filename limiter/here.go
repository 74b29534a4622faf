package limiter

import (
	"context"
	"sync"
	"sync/atomic"
)

// here is a Store that counts the slots marked Here in this process, settles by the
// rates in force, and leaves everything else to another Store. A take has such slots only, or none.
type here struct {
	Store

	rates atomic.Pointer[rates] // by the configuration in force

	mu   sync.Mutex
	held map[SlotID]int // no entry is zero
}

func newHere(s Store) *here { return &here{Store: s, held: map[SlotID]int{}} }

// ours reports whether a take's slots are counted here.
func ours(t Take) bool { return len(t.Slots) > 0 && t.Slots[0].Slot.Here }

// take holds all slots, or none and tells which are full.
func (s *here) take(slots []Slot) (full []bool, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	full, ok = make([]bool, len(slots)), true
	for i, slot := range slots {
		full[i] = s.held[slot.Slot] >= slot.Cap
		ok = ok && !full[i]
	}
	if ok {
		for _, slot := range slots {
			s.held[slot.Slot]++
		}
	}
	return full, ok
}

// free gives slots back and returns those that are not counted here.
func (s *here) free(slots []SlotID) (others []SlotID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slots {
		switch {
		case !id.Here:
			others = append(others, id)
		case s.held[id] > 1:
			s.held[id]--
		default:
			delete(s.held, id)
		}
	}
	return others
}

// Admit implements Store. The slots are held while the other store is asked, so
// that nothing has to be given back there for want of one; where one is full,
// it is not asked, and the verdict tells no levels.
func (s *here) Admit(ctx context.Context, t Take) (v Verdict, err error) {
	if !ours(t) {
		return s.Store.Admit(ctx, t)
	}
	full, ok := s.take(t.Slots)
	if !ok || len(t.Charges) == 0 {
		return Verdict{OK: ok, Full: full}, nil
	}
	defer func() { // after a panic, too
		if !v.OK || err != nil {
			s.free(ids(t.Slots))
		}
	}()
	v, err = s.Store.Admit(ctx, Take{Charges: t.Charges})
	v.Full = full
	return v, err
}

// Settle implements Store.
func (s *here) Settle(f Settlement) {
	f.Free, f.Adjust = s.free(f.Free), s.rates.Load().now(f.Adjust)
	if len(f.Adjust) > 0 || len(f.Free) > 0 {
		s.Store.Settle(f)
	}
}

// Turns implements Store. A waiter takes its slots once it is granted; where one
// is full by then, its turn is given back. That costs nothing where the slots
// of most waiters are free, as a waiter asks but once.
func (s *here) Turns(ctx context.Context, t Turns) (TurnsVerdict, error) {
	bids := t.Bids
	t.Bids = make([]Bid, len(bids))
	for i, b := range bids {
		if t.Bids[i] = b; ours(b.Rest) {
			t.Bids[i].Rest.Slots = nil
		}
	}
	v, err := s.Store.Turns(ctx, t)
	if err != nil {
		return v, err
	}
	for i, b := range bids {
		if !ours(b.Rest) {
			continue
		}
		rest := &v.Bids[i].Rest
		rest.Full = make([]bool, len(b.Rest.Slots))
		if v.Bids[i].State != BidGranted {
			continue
		}
		full, ok := s.take(b.Rest.Slots)
		if ok {
			continue
		}
		s.Settle(t.undo(b, rest.Local))
		if v.Wait > 0 { // somebody is left, for whom the bucket has something again
			v.Wait, v.Bucket = 1, 1
		}
		v.Bids[i].State, rest.OK, rest.Full = BidBlocked, false, full
	}
	return v, nil
}

// undo gives back the turn of b and what it took besides, its slots aside.
func (t Turns) undo(b Bid, local bool) Settlement {
	s := (&demand{take: Take{Charges: b.Rest.Charges}}).undo()
	s.Local = local
	s.Adjust = append(s.Adjust, Adjustment{Bucket: t.Pool, Rate: t.Rate, Delta: b.Cost, Tenant: b.Tenant, Weight: b.Weight})
	return s
}

// ids lists the names of slots.
func ids(slots []Slot) []SlotID {
	out := make([]SlotID, len(slots))
	for i, s := range slots {
		out[i] = s.Slot
	}
	return out
}
