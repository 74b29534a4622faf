package limiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/fleet"
)

// twoSides are the accounts of two replicas that hear of each other.
type twoSides struct {
	accounts [2]*accounts
	seq      uint64
	now      time.Time
}

func newSides() *twoSides {
	return &twoSides{accounts: [2]*accounts{newAccounts(), newAccounts()}, now: time.Unix(1000, 0)}
}

// gossip tells side i what the other has served and who waits there; lost
// digests are simply not told.
func (s *twoSides) gossip(i int) {
	s.seq++
	s.now = s.now.Add(time.Millisecond)
	other := s.accounts[1-i]
	v := &fleet.View{At: s.now, Replicas: []fleet.Digest{{
		Replica: fmt.Sprint(1 - i), Incarnation: 1, Sequence: s.seq,
		Pools: []fleet.Pool{{Name: "p", Tenants: other.loads(100)}},
	}}}
	s.accounts[i].absorb(v, "p", func(ID) float64 { return 1 }, s.now)
}

// What both sides book as entitled is what both served, whatever is lost on
// the way, once the last digests have arrived.
func TestEntitlementAddsUpToWhatWasServed(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		s := newSides()
		var entitled, received float64
		book := func(_ ID, p portion) { entitled, received = entitled+p.entitled, received+p.received }
		for range 6 {
			s.accounts[rng.IntN(2)].arrive(Tenant{ID: ID(fmt.Sprint(rng.IntN(4))), Weight: 1}, s.now)
		}
		for i := range 2 { // each knows who waits where
			s.gossip(i)
		}
		served := 0.0
		for range 40 {
			a := s.accounts[rng.IntN(2)]
			for id, acc := range a.tenants {
				if acc.here > 0 {
					a.serve(Tenant{ID: id, Weight: 1}, 1, s.now)
					served++
					break
				}
			}
			if rng.IntN(3) == 0 {
				s.gossip(rng.IntN(2))
			}
		}
		for range 2 { // twice: absorbing again what is known changes nothing
			for i := range 2 {
				s.gossip(i)
			}
		}
		for _, a := range s.accounts {
			a.divide(book)
		}
		if received != served {
			t.Errorf("seed %d: received %v of %v served", seed, received, served)
		}
		if math.Abs(entitled-served) > 1e-6*served {
			t.Errorf("seed %d: entitled to %v, served %v", seed, entitled, served)
		}
	}
}

func TestEntitlementIsByWeightAmongThoseWhoWait(t *testing.T) {
	a, now := newAccounts(), time.Unix(1000, 0)
	gold, plain, small := Tenant{ID: "gold", Weight: 3}, Tenant{ID: "plain", Weight: 1}, Tenant{ID: "small", Weight: 1}
	a.arrive(gold, now)
	a.arrive(plain, now)
	for _, s := range []struct {
		t    Tenant
		cost float64
	}{{gold, 2}, {plain, 6}, {small, 4}} {
		a.serve(s.t, s.cost, now)
	}
	got := map[ID]float64{}
	a.divide(func(id ID, p portion) {
		if got[id] = p.entitled; p.fleetEntitled != p.entitled || p.fleetReceived != p.received {
			t.Errorf("%s: a fleet of one has %+v", id, p)
		}
	})
	// small asked for 4 and never had to wait: 8 are left for 3 + 1.
	if got["gold"] != 6 || got["plain"] != 2 || got["small"] != 4 {
		t.Errorf("entitled %v", got)
	}
}

// Being away earns nothing, and a lead is measured against the poorest who
// waits elsewhere.
func TestAccountsLiftThoseWhoReturn(t *testing.T) {
	s := newSides()
	busy, idle := Tenant{ID: "busy", Weight: 1}, Tenant{ID: "idle", Weight: 1}
	here, there := s.accounts[0], s.accounts[1]
	here.arrive(busy, s.now)
	there.arrive(busy, s.now)
	for range 100 {
		here.serve(busy, 1, s.now)
	}
	s.gossip(1)
	s.gossip(0)
	if lead := here.lead("busy"); lead != 0 {
		t.Errorf("busy leads itself by %v", lead)
	}
	there.arrive(idle, s.now)
	s.gossip(0)
	if lead := here.lead("busy"); lead > 1 {
		t.Errorf("one who was away has saved up %v", lead)
	}
	for range 10 {
		here.serve(busy, 1, s.now)
	}
	s.gossip(0)
	if lead := here.lead("busy"); lead < 9 || lead > 11 {
		t.Errorf("after 10 more served here the lead is %v", lead)
	}
}

// A restarted replica begins its counters anew: that is not negative service.
func TestAccountsSurviveARestart(t *testing.T) {
	a, now := newAccounts(), time.Unix(1000, 0)
	tell := func(incarnation uint64, served float64) {
		now = now.Add(time.Millisecond)
		a.absorb(&fleet.View{At: now, Replicas: []fleet.Digest{{Replica: "r", Incarnation: incarnation, Pools: []fleet.Pool{{
			Name: "p", Tenants: []fleet.TenantLoad{{Tenant: "t", Queued: 1, Served: served}},
		}}}}}, "p", func(ID) float64 { return 1 }, now)
	}
	tell(1, 500)
	before := a.tenants["t"].finish
	tell(1, 520)
	tell(2, 3)
	tell(2, 7)
	if got := a.tenants["t"].finish - before; got != 24 {
		t.Errorf("tag grew by %v, want 20 + 4", got)
	}
}

// A fleet of one does not look at all its accounts each time that a line is pumped.
func TestAccountsOfOneAreLookedAtNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{}.withDefaults()
		s := newLines(fair, &cfg, nil, fleet.Solo("a"), nil)
		ln, looks := &line{accounts: newAccounts()}, map[time.Time]bool{}
		for range 1000 {
			s.absorbLocked(ln, time.Now())
			looks[ln.accounts.looked] = true
			time.Sleep(time.Millisecond)
		}
		if len(looks) != 20 {
			t.Errorf("%d looks in a second", len(looks))
		}
	})
}

// Who leaves after Close calls the store for turns no more: its owner may close it.
func TestNoTurnsAfterClose(t *testing.T) {
	cfg := exactConfig()
	s := newLines(fair, &cfg, nil, fleet.Solo("a"), nil)
	d := cfg.demandOf(Request{Identities: Identities{Model: "m", User: "u"}})
	ln := s.lineLocked(d.take.Charges[0].Bucket, &waiter{demand: d})
	ln.turns.claimed = true // which an empty line withdraws
	s.close()
	s.pump(ln)
	if ln.turns.calling {
		t.Error("a call is under way")
	}
}

// A line is not forgotten while its last waiter, out of the queue after a long wait,
// acts on what it was told: it may come back.
func TestLineOfOneThatWasToldIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := exactConfig()
		s := newLines(fair, &cfg, nil, fleet.Solo("a"), nil)
		d := cfg.demandOf(Request{Identities: Identities{Model: "m", User: "u"}})
		w := newWaiter(Request{}, d, Tenant{ID: "u", Weight: 1}, time.Now(), time.Now().Add(time.Minute))
		ln := s.lineLocked(d.take.Charges[0].Bucket, w)
		s.enterLocked(ln, w, time.Now(), place{bucket: ln.bucket})
		time.Sleep(lineMemory + time.Second)
		s.tellLocked(w, answer{ask: true})
		s.share(time.Now())
		if s.byBucket[ln.bucket] != ln {
			t.Error("it is forgotten")
		}
	})
}

func exactConfig() Config {
	return Config{
		Limits: map[Dimension]Limit{Model: {Rule: Rule{Requests: &Rate{Limit: 1, Per: time.Second, Burst: 1}}}},
		Fair:   FairConfig{Enabled: true, Scope: FairExact},
	}.withDefaults()
}
