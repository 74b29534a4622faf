package replica_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// Redis hangs for 200 ms every 2 s: nobody's share suffers, and a small tenant
// waits for the stall and little more.
func TestStallsKeepTurnsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 8, yaml("exact", 400, names(tenants)))
		stop := time.Now().Add(warmup + 12*time.Second)
		go func() {
			for time.Now().Before(stop) {
				time.Sleep(1800 * time.Millisecond)
				s.links(func(m *member) { m.link.Freeze() })
				time.Sleep(200 * time.Millisecond)
				s.links(func(m *member) { m.link.Thaw() })
			}
		}()
		f := s.contend(splits["heavyall"], 12*time.Second)
		t.Log(f)
		if f.jain < 0.999 || f.worst < 0.9 {
			t.Errorf("unfair under stalls: %v", f)
		}
		if f.smallP99 > 300*time.Millisecond {
			t.Errorf("small tenants wait %v at p99, want at most stall + 100 ms", f.smallP99)
		}
	})
}

// links calls f for every living replica.
func (s *sim) links(f func(*member)) {
	for _, m := range s.list() {
		if !m.dead.Load() {
			f(m)
		}
	}
}

// Gossip is cut for a minute: limits and turns don't notice, answers say that
// positions reach over one replica only, and the view heals by itself.
func TestGossipCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 4, yaml("exact", rate, names(tenants)))
		start := time.Now()
		time.AfterFunc(2*time.Second, func() { s.net.Partition(s.members[0].host, s.members[1].host) })
		f := s.contend(splits["heavyall"], 20*time.Second)
		t.Log(f)
		if f.jain < 0.999 || f.worst < 0.9 {
			t.Errorf("unfair without gossip: %v", f)
		}
		time.Sleep(time.Until(start.Add(62 * time.Second)))
		if s.seen() == 4 {
			t.Fatal("the cut was not noticed")
		}
		s.net.Mend()
		mended := time.Now()
		for s.seen() < 4 {
			if time.Since(mended) > 30*time.Second {
				t.Fatalf("only %d of 4 see each other 30 s after the cut", s.seen())
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("healed %v after the cut ended", time.Since(mended).Round(100*time.Millisecond))
	})
}

// While half the fleet is out of sight, waiters are told so.
func TestScopeOfPositionsFollowsTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 2, yaml("exact", 10, names(2)))
		time.Sleep(time.Second)
		if got := s.waiterScope(); got != "fleet" {
			t.Errorf("with a fresh view: scope %q", got)
		}
		s.net.Partition(s.members[0].host)
		time.Sleep(30 * time.Second)
		if got := s.waiterScope(); got != "replica" {
			t.Errorf("cut off: scope %q", got)
		}
		s.net.Mend()
		time.Sleep(30 * time.Second)
		if got := s.waiterScope(); got != "fleet" {
			t.Errorf("healed: scope %q", got)
		}
	})
}

// waiterScope drains the bucket at the first replica and returns what one who
// had to wait there was told.
func (s *sim) waiterScope() string {
	for range 40 {
		if a := s.ask(context.Background(), s.members[0], "t00"); a.scope != "" {
			return a.scope
		}
	}
	return ""
}

// A replica crashes and another joins under load: the limit holds, and shares
// stay fair for those who can still ask.
func TestCrashAndJoinUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 5, yaml("exact", rate, names(tenants)))
		time.AfterFunc(5*time.Second, func() { s.crash(s.list()[4]) })
		time.AfterFunc(8*time.Second, func() { s.join() })
		alive := func(i, n int) *member { // the next one that is not dead
			all := s.list()
			for all[(i+n)%len(all)].dead.Load() {
				n++
			}
			return all[(i+n)%len(all)]
		}
		share := float64(rate) / tenants
		var load []tenant
		for i, name := range names(tenants) {
			asks := 0.3 * share
			if i < backlogged {
				asks = 5 * share
			}
			load = append(load, tenant{name, asks, func(n int) *member { return alive(i, n) }})
		}
		time.AfterFunc(warmup, s.provider.Ledger().Reset)
		begin := time.Now()
		c := s.run(15*time.Second, load)
		jain, worst := fair(s.served(), names(backlogged))
		ok := 0
		for _, list := range c.answers {
			for _, a := range list {
				if a.status == http.StatusOK {
					ok++
				}
			}
		}
		if allowed := rate/10 + rate*time.Since(begin).Seconds(); float64(ok) > allowed || float64(ok) < 0.9*rate*15 {
			t.Errorf("%d admitted, %.0f allowed", ok, allowed)
		}
		if jain < 0.995 || worst < 0.9 {
			t.Errorf("Jain %.4f, worst share %.2f", jain, worst)
		}
	})
}
