package memstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

var (
	user  = limiter.BucketID{Dimension: limiter.User, Class: limiter.Requests, ID: limiter.Hash(limiter.User, "u")}
	slots = limiter.SlotID{Dimension: limiter.User, ID: user.ID}
)

func take(cost int64, limit int64, cap int) limiter.Take {
	t := limiter.Take{Charges: []limiter.Charge{{
		Bucket: user, Rate: limiter.Rate{Limit: limit, Per: time.Second, Burst: limit}, Cost: cost,
	}}}
	if cap > 0 {
		t.Slots = []limiter.Slot{{Slot: slots, Cap: cap}}
	}
	return t
}

func TestReplicasShareBucketsAndSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		a, b := m.Replica(Options{}), m.Replica(Options{})
		ctx := t.Context()
		steps := []struct {
			on     *Store
			wantOK bool
		}{{a, true}, {b, true}, {a, false}, {b, false}}
		for i, s := range steps {
			v, err := s.on.Admit(ctx, take(1, 100, 2))
			if err != nil || v.OK != s.wantOK || v.Full[0] == s.wantOK {
				t.Fatalf("step %d: got %+v, %v; want OK %v", i, v, err, s.wantOK)
			}
		}
		a.Settle(limiter.Settlement{Free: []limiter.SlotID{slots}})
		if v, _ := b.Admit(ctx, take(1, 100, 2)); !v.OK || v.Charges[0].Remaining != 97 {
			t.Fatalf("after a release: got %+v, want a grant with 97 left", v)
		}
	})
}

func TestCrashFreesAfterLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		a, b := m.Replica(Options{}), m.Replica(Options{})
		if v, _ := a.Admit(t.Context(), take(1, 100, 1)); !v.OK {
			t.Fatal("first slot refused")
		}
		time.Sleep(time.Hour) // a living replica keeps its slot however long
		if v, _ := b.Admit(t.Context(), take(1, 100, 1)); v.OK {
			t.Fatal("slot of a living replica was given away")
		}
		a.Crash()
		time.Sleep(DefaultLeaseTTL - time.Millisecond)
		if v, _ := b.Admit(t.Context(), take(1, 100, 1)); v.OK {
			t.Fatal("slot free before its lease ended")
		}
		time.Sleep(time.Millisecond)
		if v, _ := b.Admit(t.Context(), take(1, 100, 1)); !v.OK {
			t.Fatal("slot taken after its lease ended")
		}
	})
}

func TestDownAndClosed(t *testing.T) {
	m := New()
	s := m.Replica(Options{})
	m.SetDown(true)
	if _, err := s.Admit(context.Background(), take(1, 1, 0)); !errors.Is(err, limiter.ErrUnavailable) || s.Health().Usable {
		t.Fatalf("down: err %v, health %+v", err, s.Health())
	}
	m.SetDown(false)
	if _, err := s.Admit(context.Background(), take(1, 1, 0)); err != nil || !s.Health().Usable {
		t.Fatalf("up again: err %v, health %+v", err, s.Health())
	}
	s.Close(context.Background())
	if _, err := s.Peek(context.Background(), take(1, 1, 0)); !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatalf("closed: err %v", err)
	}
}

func BenchmarkAdmit(b *testing.B) {
	s := New().Replica(Options{})
	t := take(1, 1_000_000_000, 1)
	free := limiter.Settlement{Free: []limiter.SlotID{slots}}
	b.ReportAllocs()
	for b.Loop() {
		if v, err := s.Admit(b.Context(), t); err != nil || !v.OK {
			b.Fatal(v, err)
		}
		s.Settle(free)
	}
}
