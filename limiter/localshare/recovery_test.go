package localshare_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// forgetful is a store that loses every correction, and so every debt.
type forgetful struct{ *redisstore.Store }

func (f forgetful) Settle(s limiter.Settlement) {
	s.Adjust = nil
	f.Store.Settle(s)
}

// O3: a burst of a second is not given twice. The same run without debts shows
// what they are for.
func TestDebtsForbidASecondBurst(t *testing.T) {
	rate := limiter.Rate{Limit: 200, Per: time.Second, Burst: 200}
	run := func(t *testing.T, wrap func(*redisstore.Store) limiter.Store) (after, excess, debts float64) {
		r, l := &rig{t: t, server: storetest.NewBubble(t), policy: shares, wrap: wrap}, &ledger{}
		r.grow(6)
		off := time.Now().Add(2 * time.Second)
		back := off.Add(8 * time.Second)
		time.AfterFunc(time.Until(off), func() { r.links((*storetest.Link).Freeze) })
		time.AfterFunc(time.Until(back), func() { r.links((*storetest.Link).Thaw) })
		r.offer(l, rand.New(rand.NewPCG(3, 4)), 500, even(6), back.Add(2*time.Second), func() limiter.Take { return take(rate, 1, 0) })
		healed := back
		for _, g := range l.grants {
			if g.local && g.at.After(healed) {
				healed = g.at
			}
		}
		t.Logf("the last local grant came %v after the store was back", healed.Sub(back))
		return float64(l.between(healed, healed.Add(time.Second))), l.excess(rate), r.debts()
	}
	synctest.Test(t, func(t *testing.T) {
		after, excess, debts := run(t, nil)
		t.Logf("%.0f in the second after, %.0f charged, at the worst %.1f above one bucket", after, debts, excess)
		// Replicas find the store up to half a second apart. The last ones go on by
		// their shares while the first draw from its bucket: 5/6 of 200/s for 0.5 s.
		const apart = 84
		if most := 200 - debts + 200; after > most+apart || debts < 170 {
			t.Errorf("%.0f admitted in the second after the outage, want %.0f at most; %.0f were charged", after, most, debts)
		}
		if excess > apart {
			t.Errorf("%.1f above one bucket", excess)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		if _, excess, _ := run(t, func(s *redisstore.Store) limiter.Store { return forgetful{s} }); excess < 120 {
			t.Errorf("without debts only %.1f above one bucket: this test shows nothing", excess)
		}
	})
}

// A saturated bucket gives no burst when the store goes, however the load is
// spread; nor does one in debt.
func TestSharesAreWarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, l := newRig(t, 4), &ledger{}
		rate := limiter.Rate{Limit: 100, Per: time.Second, Burst: 1000}
		off := time.Now().Add(15 * time.Second)
		time.AfterFunc(time.Until(off), func() { r.links((*storetest.Link).Cut) })
		r.offer(l, rand.New(rand.NewPCG(5, 6)), 400, zipf(4), off.Add(3*time.Second), func() limiter.Take { return take(rate, 1, 0) })
		n := l.between(off, off.Add(time.Second))
		t.Logf("%d in the first second without a store", n)
		if n > 110 {
			t.Errorf("%d admitted in the first second without a store from an empty bucket of 100/s", n)
		}
		r.links((*storetest.Link).Mend)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		rate := limiter.Rate{Limit: 100, Per: time.Minute, Burst: 100}
		k := take(rate, 10, 0)
		r.replicas[0].must(t, k, false)
		r.replicas[0].Settle(limiter.Settlement{Adjust: []limiter.Adjustment{{Bucket: k.Charges[0].Bucket, Rate: rate, Delta: -190}}})
		r.links((*storetest.Link).Cut)
		if v := r.replicas[0].decide(t, k); v.OK || v.Charges[0].Wait < 71*time.Second {
			t.Errorf("100 in debt: got %+v, want a wait of 72 s: 110 of the fleet's bucket, and 10 for the other half", v)
		}
		r.links((*storetest.Link).Mend)
	})
}

// decide asks until the share has answered.
func (p *replica) decide(t *testing.T, k limiter.Take) limiter.Verdict {
	t.Helper()
	v, err := p.Admit(context.Background(), k)
	if err != nil || !v.Local {
		t.Fatalf("got %+v, %v; want a local decision", v, err)
	}
	return v
}

func (p *replica) must(t *testing.T, k limiter.Take, local bool) {
	t.Helper()
	if v, err := p.Admit(context.Background(), k); err != nil || !v.OK || v.Local != local {
		t.Fatalf("got %+v, %v; want a grant, local: %v", v, err, local)
	}
}

// Who joins during an outage has nothing until everybody can have counted it.
func TestNewcomersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4)
		k := take(limiter.Rate{Limit: 60, Per: time.Minute, Burst: 60}, 1, 0)
		r.links((*storetest.Link).Cut)
		time.Sleep(time.Second)
		p := &replica{link: r.server.Link(), fleet: &seen{}, reg: newRegistry()}
		p.link.Cut()
		p.fleet.see(1)
		r.start(p)
		r.replicas = append(r.replicas, p)
		began := time.Now()
		if v, err := p.Admit(t.Context(), k); !errors.Is(err, limiter.ErrUnavailable) || p.Informed() {
			t.Errorf("alone and new: got %+v, %v; want ErrUnavailable: no limit is used up", v, err)
		}
		time.Sleep(time.Second)
		r.gossip(5) // met the others
		for time.Since(began) < 5900*time.Millisecond {
			if _, err := p.Admit(t.Context(), k); !errors.Is(err, limiter.ErrUnavailable) || p.Informed() {
				t.Fatalf("decides %v after it has met the others", time.Since(began)-time.Second)
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(500 * time.Millisecond)
		if !p.Informed() {
			t.Error("not informed, and has a share")
		}
		p.must(t, k, true)
		for i, q := range r.replicas {
			if q.Divisor() != 5 {
				t.Errorf("replica %d divides by %d, want 5", i, q.Divisor())
			}
		}
		r.links((*storetest.Link).Mend)
	})
}

// Without gossip the store's count has to do; who never met it decides nothing.
func TestWithoutGossip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3)
		r.gossip(0)
		time.Sleep(12 * time.Second)
		r.links((*storetest.Link).Cut)
		time.Sleep(10 * time.Minute)
		for i, p := range r.replicas {
			if p.Divisor() != 3 {
				t.Errorf("replica %d divides by %d, want 3", i, p.Divisor())
			}
		}
		p := &replica{link: r.server.Link(), fleet: &seen{}, reg: newRegistry()}
		p.link.Cut()
		r.start(p)
		r.replicas = append(r.replicas, p)
		time.Sleep(time.Minute)
		if v, err := p.Admit(t.Context(), take(thousand, 1, 0)); !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("never met anybody: got %+v, %v; want ErrUnavailable", v, err)
		}
		r.links((*storetest.Link).Mend)
	})
}

// A cut of gossip while the store works does not lower the divisor, for the
// store counts as well.
func TestTheStoreKnowsThatGossipIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, server: storetest.NewBubble(t), policy: shares, probe: 2 * time.Second}
		r.grow(4)
		for _, p := range r.replicas {
			p.fleet.see(2)
		}
		time.Sleep(11 * time.Minute)
		for i, p := range r.replicas {
			if p.Divisor() != 4 {
				t.Errorf("replica %d divides by %d, want 4", i, p.Divisor())
			}
		}
	})
}

// Several dimensions: closed wins, open ones are skipped, shares decide.
func TestPolicies(t *testing.T) {
	c, o, l := limiter.FailClosed, limiter.FailOpen, limiter.LocalShare
	for _, k := range []struct {
		user, model limiter.OutagePolicy
		userEmpty   bool
		fails, ok   bool
	}{
		{user: c, model: l, fails: true}, {user: l, model: c, fails: true}, {user: o, model: c, fails: true},
		{user: o, model: o, fails: true}, // for the limiter to say so
		{user: l, model: l, ok: true}, {user: l, model: o, ok: true}, {user: o, model: l, ok: true},
		{user: l, model: o, userEmpty: true}, {user: o, model: l, userEmpty: true, ok: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{t: t, server: storetest.NewBubble(t), policy: func(d limiter.Dimension) limiter.OutagePolicy {
				return map[limiter.Dimension]limiter.OutagePolicy{limiter.User: k.user, limiter.Model: k.model}[d]
			}}
			r.grow(2)
			p := r.replicas[0]
			rate := limiter.Rate{Limit: 10, Per: time.Hour, Burst: 10}
			ask := take(rate, 1, 0)
			if k.userEmpty {
				p.must(t, take(rate, 10, 0), false)
			}
			model := limiter.BucketID{Dimension: limiter.Model, ID: limiter.Hash(limiter.Model, "m")}
			ask.Charges = append(ask.Charges, limiter.Charge{Bucket: model, Rate: rate, Cost: 1})
			r.links((*storetest.Link).Cut)
			v, err := p.Admit(t.Context(), ask)
			if (err != nil) != k.fails || v.OK != k.ok || err == nil && !v.Local {
				t.Errorf("user %s (empty: %v), model %s: got %+v, %v", k.user, k.userEmpty, k.model, v, err)
			}
			r.links((*storetest.Link).Mend)
		})
	}
}

// What a request used is corrected where it was granted.
func TestSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2)
		p := r.replicas[0]
		rate := limiter.Rate{Limit: 1, Per: 100 * time.Hour, Burst: 1000}
		k := take(rate, 100, 0)
		adjust := func(delta int64) limiter.Settlement {
			return limiter.Settlement{Local: true, Adjust: []limiter.Adjustment{{Bucket: k.Charges[0].Bucket, Rate: rate, Delta: delta}}}
		}
		left := func() int64 {
			v, err := p.redis.Peek(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			return v.Charges[0].Remaining
		}
		r.links((*storetest.Link).Cut)
		p.must(t, k, true)
		p.must(t, k, true)
		p.must(t, k, true)
		p.Settle(adjust(60))  // one used 40
		p.Settle(adjust(-50)) // one used 150
		if v := p.decide(t, take(rate, 1000, 0)); v.OK || v.Charges[0].Remaining != 500-100-40-150 {
			t.Errorf("of a share of 500, after 100, 40 and 150: got %+v", v)
		}
		r.links((*storetest.Link).Mend)
		r.usable(true, 2*time.Second)
		time.Sleep(time.Second)
		if got := left(); got != 1000-290 {
			t.Errorf("%d left after the outage, want 1000 less 290", got)
		}
		p.Settle(adjust(90)) // the third used 10, but was charged at the end of the outage
		p.Settle(adjust(-5))
		time.Sleep(time.Second)
		if got := left(); got != 1000-290-5 {
			t.Errorf("%d left, want only what was used above the estimate to count", got)
		}
	})
}
