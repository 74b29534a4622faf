package fairq

import "fmt"

// sfq is the round of start-time fair queueing. A tenant's key is its start
// tag S: what it would have been served per weight had it kept up with the
// virtual time V since it joined. The queue's V is the tag of its latest turn.
type sfq[T any] struct{ agenda[T] }

// enter joins at S = max(V, own tag).
func (s *sfq[T]) enter(t *tenant[T]) bool {
	if t.since == 0 || t.key-s.now <= 0 { // new, or caught up with
		if t.length == 0 {
			return false
		}
		t.key = s.now
	}
	s.last(t)
	s.add(t)
	return true
}

func (s *sfq[T]) leave(t *tenant[T]) { s.remove(t) }

// resized changes nothing: the tag does not depend on what is queued.
func (s *sfq[T]) resized(*tenant[T], int) {}

// reweigh divides what t is ahead of V anew.
func (s *sfq[T]) reweigh(t *tenant[T], weight float64) {
	if ahead := t.key - s.now; t.since > 0 && ahead > 0 {
		t.key = s.now + amount(float64(ahead)/float64(unit)*t.weight/weight)
	}
	t.weight = weight
	if t.where == inRound {
		s.moved(t)
	}
}

// take serves the least tag, to which the turn adds cost ÷ weight.
func (s *sfq[T]) take() (*Item[T], *tenant[T]) {
	t := s.first()
	it := t.head
	s.begin(t)
	t.unlink(it)
	it.taken.paid = amount(it.cost / t.weight)
	t.key += it.taken.paid
	if t.length == 0 && t.key-s.now <= 0 {
		s.remove(t)
		return it, t
	}
	s.last(t)
	s.moved(t)
	return it, t
}

func (s *sfq[T]) undo(t *tenant[T], it *Item[T]) {
	was := it.taken
	s.rewind(was)
	t.since = min(t.since, was.since)
	switch {
	case t.where == outside: // forgotten
		t.key, t.since = later(was.key, s.now), was.since
		s.add(t)
		return
	case t.generation == was.generation:
		t.key -= was.paid
	default: // forgotten and met again: this life of it paid nothing
		if tag := later(was.key, s.now); tag-t.key < 0 {
			t.key = tag
		}
	}
	if t.where == inRound {
		s.moved(t)
	}
}

// later is the larger of two tags.
func later(a, b fixed) fixed {
	if a-b < 0 {
		return b
	}
	return a
}

func (s *sfq[T]) correct(t *tenant[T], delta float64) {
	if t.since == 0 {
		t.key = s.now
		s.last(t)
	}
	t.key = s.now + (t.key - s.now + signed(delta/t.weight)).near()
	if t.where == inRound {
		s.moved(t)
	}
}

// ahead counts whose start tag is less than that of it. Of each other tenant
// it takes the mean cost for that of every item.
func (s *sfq[T]) ahead(it *Item[T]) int {
	t := it.owner
	n, cost := t.earlier(it)
	tag := t.key
	if t.where == parked {
		tag = later(tag, s.now)
	}
	tag += amount(cost / t.weight)
	return n + s.sum(t, tag, func(o *tenant[T]) int {
		each := o.backlog / float64(o.length) / o.weight
		items := float64(tag-o.key) / float64(unit) / each
		less := turnsOf(items)
		if o.since < t.since && float64(less)-items < 1e-6 { // its next ties, and goes first
			less++
		}
		return min(int(o.length), less)
	})
}

func (s *sfq[T]) describe(t *tenant[T]) string {
	return fmt.Sprintf("start=%+.3f", (t.key - s.now).of(unit))
}
