package redisstore

import (
	"sync"

	"github.com/headway-limiter/headway/limiter"
)

// slots is this replica's own table of in-flight slots, the authority on what
// it holds. Invariant of every slot: once all calls are answered, Redis stores
// at least held, and exactly held after the next statement.
type slots struct {
	onDue func() // told, under mu, when a slot becomes due for a statement

	mu    sync.Mutex
	seq   int64 // last sequence drawn
	table map[limiter.SlotID]*slot
	dirty []*slot // those with slot.listed, in order of their marking
}

// slot is the state of one counter. Guarded by slots.mu.
type slot struct {
	id      limiter.SlotID
	held    int64 // requests running
	pending int64 // calls under way that may be granted
	// stated is what Redis stores at most, as of sequence statedAt. Above
	// held+pending it must be restated.
	stated, statedAt int64
	listed           bool // in slots.dirty
	// carried counts settlements under way that state this slot. Meanwhile no
	// other statement does: it would overtake them, and the sequence that proves
	// whether they ran would be gone.
	carried int
}

// statement is what one call says about one slot.
type statement struct {
	id         limiter.SlotID
	held, want int64
}

func newSlots(onDue func()) *slots {
	return &slots{onDue: onDue, table: map[limiter.SlotID]*slot{}}
}

// draw states want for each slot asked for, under a new sequence, into wants.
// counted is false when the replica itself has no room: the call can only be
// refused and is not pending.
func (s *slots) draw(ask []limiter.Slot, wants []int64) (seq int64, counted bool) {
	if len(ask) == 0 {
		return 0, true // nothing to put in order
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	counted = true
	for i, a := range ask {
		sl := s.findLocked(a.Slot)
		wants[i] = sl.held + sl.pending + 1
		if wants[i] > int64(a.Cap) {
			wants[i], counted = int64(a.Cap)+1, false
		}
	}
	for _, a := range ask {
		if sl := s.table[a.Slot]; counted {
			sl.pending++
		} else {
			s.tidyLocked(sl)
		}
	}
	return s.seq, counted
}

// granted turns pending into held; wants are those of the granted call, and may
// count others as pending who have got nothing meanwhile.
func (s *slots) granted(ask []limiter.Slot, wants []int64, seq int64, counted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range ask {
		sl := s.findLocked(a.Slot)
		sl.held++
		if counted {
			sl.pending--
		}
		s.statedLocked(sl, wants[i], seq)
		s.checkLocked(sl)
	}
}

// dropped ends calls that got nothing. unsure: they may have, unheard.
// It reports whether a statement is due.
func (s *slots) dropped(ask []limiter.Slot, counted, unsure bool) bool {
	if !counted || len(ask) == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	due := false
	for _, a := range ask {
		sl := s.findLocked(a.Slot)
		sl.pending--
		if unsure {
			s.markLocked(sl)
		}
		due = s.checkLocked(sl) || due
	}
	return due
}

// release ends held slots, each at most down to zero. carried: a settlement
// states them, until dropCarried.
func (s *slots) release(ids []limiter.SlotID, carried bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		sl := s.findLocked(id)
		sl.held = max(0, sl.held-1)
		if carried {
			sl.carried++
		} else {
			s.checkLocked(sl)
		}
	}
}

// dropCarried ends what release began. unsure: nobody knows what was stated.
func (s *slots) dropCarried(ids []limiter.SlotID, unsure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		sl := s.findLocked(id)
		sl.carried--
		if unsure {
			s.markLocked(sl)
		}
		if s.checkLocked(sl) {
			s.onDue()
		}
	}
}

// releaseAll forgets everything held, for good.
func (s *slots) releaseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.table {
		sl.held = 0
		s.markLocked(sl)
	}
}

// hold adds a slot without asking; the next statement makes it known.
func (s *slots) hold(id limiter.SlotID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.findLocked(id)
	sl.held++
	s.markLocked(sl)
}

// markAll makes every slot due for a statement, which renews it.
func (s *slots) markAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.table {
		s.markLocked(sl)
	}
}

// mark makes the slots of failed statements due again.
func (s *slots) mark(sts []statement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range sts {
		s.markLocked(s.findLocked(st.id))
	}
}

// state draws statements about named slots, taking them off the due list.
func (s *slots) state(ids []limiter.SlotID) (seq int64, sts []statement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	for _, id := range ids {
		sts = append(sts, statementOf(s.findLocked(id)))
	}
	return s.seq, sts
}

// due draws a sequence and offers every slot that needs a statement to take,
// which may draw the statement and say so, or leave the slot for later.
func (s *slots) due(take func(id limiter.SlotID, st func() statement) bool) (seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	kept := s.dirty[:0]
	for i, sl := range s.dirty {
		switch {
		case !sl.listed: // stated by a settlement meanwhile
		case sl.carried > 0 || !take(sl.id, func() statement { return statementOf(sl) }):
			kept = append(kept, s.dirty[i])
		}
	}
	clear(s.dirty[len(kept):])
	s.dirty = kept
	return s.seq
}

// stated takes the counts that a statement left behind.
func (s *slots) stated(sts []statement, seq int64, counts []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, st := range sts {
		sl := s.findLocked(st.id)
		s.statedLocked(sl, counts[i], seq)
		s.checkLocked(sl)
	}
}

// counts returns how many slots are held and how many are due for a statement.
func (s *slots) counts() (held, due int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.table {
		held += sl.held
	}
	return held, int64(len(s.dirty))
}

// statementOf says what is true now, and takes sl off the due list: whatever
// changes later puts it back on.
func statementOf(sl *slot) statement {
	sl.listed = false
	return statement{id: sl.id, held: sl.held, want: sl.held + sl.pending}
}

// findLocked returns the slot of id, made if need be.
func (s *slots) findLocked(id limiter.SlotID) *slot {
	sl := s.table[id]
	if sl == nil {
		sl = &slot{id: id}
		s.table[id] = sl
	}
	return sl
}

// statedLocked remembers what a call left in Redis. Replies may come out of
// order; the sequence tells which one Redis executed last.
func (s *slots) statedLocked(sl *slot, count, seq int64) {
	if seq > sl.statedAt {
		sl.stated, sl.statedAt = count, seq
	}
}

// checkLocked marks a slot whose count in Redis is too high, and forgets one
// about which there is nothing left to say.
func (s *slots) checkLocked(sl *slot) bool {
	if sl.stated > sl.held+sl.pending {
		s.markLocked(sl)
	}
	s.tidyLocked(sl)
	return sl.listed
}

// markLocked puts sl on the due list, once.
func (s *slots) markLocked(sl *slot) {
	if !sl.listed {
		sl.listed = true
		s.dirty = append(s.dirty, sl)
		s.onDue()
	}
}

// tidyLocked forgets a slot of which Redis stores nothing and nobody here knows
// anything, so that the table is as small as the work that runs.
func (s *slots) tidyLocked(sl *slot) {
	if sl.held == 0 && sl.pending == 0 && sl.stated == 0 && sl.carried == 0 && !sl.listed {
		delete(s.table, sl.id)
	}
}
