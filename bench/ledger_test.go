package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLedgerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger(time.Second)
		a1, a2 := l.Start("a", "m"), l.Start("a", "m")
		time.Sleep(500 * time.Millisecond)
		b := l.Start("b", "n")
		a1.End(10)
		a1.End(10) // does not count
		time.Sleep(time.Second)
		a3 := l.Start("a", "n")
		s := l.Snapshot()
		want := map[string]Account{
			"a": {Starts: 3, InFlight: 2, Peak: 2, Cost: 10, PeakWindow: 2},
			"b": {Starts: 1, InFlight: 1, Peak: 1, PeakWindow: 1},
		}
		if got := fmt.Sprint(s.Tenants); got != fmt.Sprint(want) {
			t.Errorf("tenants %v, want %v", got, want)
		}
		if want := (Account{Starts: 4, InFlight: 3, Peak: 3, Cost: 10, PeakWindow: 3}); s.Total != want {
			t.Errorf("total %+v, want %+v", s.Total, want)
		}
		if s.FirstS != 0 || s.LastS != 1.5 || s.Models["n"].Starts != 2 {
			t.Errorf("first %v, last %v, model n %+v; want 0, 1.5, two starts", s.FirstS, s.LastS, s.Models["n"])
		}
		if got, want := l.Arrivals(), []time.Duration{0, 0, 500e6, 1500e6}; !slices.Equal(got, want) {
			t.Errorf("arrivals %v, want %v", got, want)
		}
		for _, c := range []*Call{a2, a3, b} {
			c.End(1)
		}
		if s := l.Snapshot(); s.Total.InFlight != 0 || s.Total.Cost != 13 {
			t.Errorf("at the end %+v, want none in flight, cost 13", s.Total)
		}
	})
}

func TestLedgerResetKeepsWhatRuns(t *testing.T) {
	l := NewLedger(0)
	running, over := l.Start("a", "m"), l.Start("b", "m")
	over.End(5)
	l.Reset()
	s := l.Snapshot()
	if want := (Account{InFlight: 1, Peak: 1}); s.Total != want || s.Tenants["a"] != want {
		t.Errorf("after reset total %+v, a %+v, want %+v", s.Total, s.Tenants["a"], want)
	}
	if _, ok := s.Tenants["b"]; ok {
		t.Error("after reset the ledger still names b")
	}
	running.End(7)
	if s := l.Snapshot(); s.Total.InFlight != 0 || s.Tenants["a"].Cost != 7 {
		t.Errorf("after the end total %+v, a %+v", s.Total, s.Tenants["a"])
	}
}

func TestLedgerPeakIsTrueUnderConcurrency(t *testing.T) {
	const workers, rounds = 8, 500
	l := NewLedger(0)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				l.Start("a", "m").End(1)
			}
		})
	}
	wg.Wait()
	s := l.Snapshot()
	if s.Total.Starts != workers*rounds || s.Total.InFlight != 0 || s.Total.Peak < 1 || s.Total.Peak > workers {
		t.Errorf("total %+v, want %d starts, none in flight, peak in 1..%d", s.Total, workers*rounds, workers)
	}
	if !slices.IsSorted(l.Arrivals()) {
		t.Error("arrivals are not in order")
	}
}

func TestLedgerMemoryIsBounded(t *testing.T) {
	l := NewLedger(0)
	for i := range maxAccounts + 10 {
		l.Start(fmt.Sprint(i), "m").End(1)
	}
	s := l.Snapshot()
	if len(s.Tenants) > maxAccounts+1 || s.Tenants[otherName].Starts != 10 {
		t.Errorf("%d tenants, %d starts of others; want at most %d and 10", len(s.Tenants), s.Tenants[otherName].Starts, maxAccounts+1)
	}
}

func TestLedgerForgetsOldestArrivals(t *testing.T) {
	l := NewLedger(0)
	for range maxArrivals + 3 {
		l.Start("a", "m").End(1)
	}
	got := l.Arrivals()
	if len(got) != maxArrivals || !slices.IsSorted(got) {
		t.Errorf("%d arrivals kept, in order %v; want %d in order", len(got), slices.IsSorted(got), maxArrivals)
	}
	if s := l.Snapshot(); s.Total.Starts != maxArrivals+3 || s.LastS != got[len(got)-1].Seconds() {
		t.Errorf("starts %d, last %v; want %d and %v", s.Total.Starts, s.LastS, maxArrivals+3, got[len(got)-1])
	}
}

// worstByHand tries every stretch.
func worstByHand(at []time.Duration, rate, burst float64) float64 {
	worst := math.Inf(-1)
	for i := range at {
		for j := i; j < len(at); j++ {
			worst = max(worst, float64(j-i+1)-burst-rate*(at[j]-at[i]).Seconds())
		}
	}
	return worst
}

func TestWorstWindow(t *testing.T) {
	const seed = 11
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 500 {
		at := make([]time.Duration, 1+r.IntN(60))
		var now time.Duration
		for i := range at {
			now += time.Duration(r.ExpFloat64() * 2e7)
			at[i] = now
		}
		rate, burst := 20+60*r.Float64(), float64(1+r.IntN(10))
		got, from, to := WorstWindow(at, rate, burst)
		if want := worstByHand(at, rate, burst); !near(got, want) {
			t.Fatalf("seed %d round %d: excess %v, by hand %v", seed, round, got, want)
		}
		var inside float64
		for _, a := range at {
			if a >= from && a <= to {
				inside++
			}
		}
		if over := inside - burst - rate*(to-from).Seconds(); math.Abs(over-got) > 1e-6 {
			t.Fatalf("seed %d round %d: stretch %v..%v has excess %v, reported %v", seed, round, from, to, over, got)
		}
	}
}
