package redisstore_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// healing bounds how soon a store is usable after its server is. The promise is
// 2 s, which TestIdleNotices checks by a clock that a busy machine cannot slow.
const healing = 10 * time.Second

// budget is that of stores here. Four times the default, for machines that run
// other tests as well.
const budget = 200 * time.Millisecond

func usable(s *redisstore.Store) func() bool { return func() bool { return s.Health().Usable } }

// admits reports that requests pass again.
func admits(s *redisstore.Store, k limiter.Take) func() bool {
	return func() bool {
		v, err := s.Admit(context.Background(), k)
		return err == nil && v.OK
	}
}

// TestPhantomGrants: 200 calls on a stopped server, all given up; it wakes, and
// has taken nothing.
func TestPhantomGrants(t *testing.T) {
	server := redisproc.Start(t)
	const budget = time.Second // before and after, every call has to be answered
	s := newStore(t, redisstore.Options{Address: server.Addr(), Timeout: budget})
	k := oneTake(100_000, 1000)
	storetest.Eventually(t, healing, "usable", usable(s))
	mustAdmit(t, s, k)
	before := s.Calls()
	server.Stop()
	start := time.Now()
	for i, err := range burstOf(s, 200, k) {
		if !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("call %d on a stopped server: %v", i, err)
		}
	}
	// To the millisecond it is known from TestHungTakesNothing.
	if took := time.Since(start); took > budget+healing {
		t.Errorf("200 calls took %v, the budget of each is %v", took, budget)
	}
	if s.Calls().Admit == before.Admit {
		t.Fatal("no call was sent: this test shows nothing")
	}
	if s.Calls().Timeouts == before.Timeouts {
		t.Error("no call counts as timed out")
	}
	server.Cont()
	storetest.Eventually(t, healing, "usable after SIGCONT", usable(s))
	// A call on a connection of its own, behind all that was sent before.
	server.Do("PING")
	if left := remaining(t, s, k); left != 99_999 {
		t.Errorf("%d left of 100000 after one grant: calls that were given up took %d", left, 99_999-left)
	}
	s.Settle(limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}})
	storetest.Eventually(t, healing, "no slot is held", func() bool {
		v, err := s.Peek(context.Background(), oneTake(100_000, 1))
		return err == nil && !v.Full[0]
	})
}

// TestOutages: whatever happens to a real server, calls fail as unavailable or
// succeed, and they succeed again by themselves.
func TestOutages(t *testing.T) {
	for _, o := range []struct {
		name       string
		begin, end func(*redisproc.Server)
		unusable   bool // begin makes every call fail
	}{
		{"stopped", (*redisproc.Server).Stop, (*redisproc.Server).Cont, true},
		{"killed", (*redisproc.Server).Kill, (*redisproc.Server).Restart, true},
		{"read-only", func(s *redisproc.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") },
			func(s *redisproc.Server) { s.Do("REPLICAOF", "NO", "ONE") }, true},
		{"out of memory", func(s *redisproc.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") },
			func(s *redisproc.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }, true},
		{"busy", busy, func(s *redisproc.Server) { s.Do("SCRIPT", "KILL") }, true},
		{"scripts flushed", func(s *redisproc.Server) { s.Do("SCRIPT", "FLUSH") }, func(*redisproc.Server) {}, false},
		{"connections killed", func(s *redisproc.Server) { s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") },
			func(*redisproc.Server) {}, false},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			server := redisproc.Start(t, "--busy-reply-threshold", "10")
			s := newStore(t, redisstore.Options{Address: server.Addr(), Timeout: budget})
			k := oneTake(1_000_000, 0)
			storetest.Eventually(t, healing, "usable", admits(s, k))
			o.begin(server)
			if o.unusable {
				began := time.Now()
				storetest.Eventually(t, healing, "the outage is noticed", func() bool {
					v, err := s.Admit(context.Background(), k)
					if v.OK || !errors.Is(err, limiter.ErrUnavailable) {
						t.Errorf("during the outage: got %+v, %v", v, err)
					}
					return !s.Health().Usable
				})
				t.Logf("noticed after %v: %s", time.Since(began), s.Health().State)
			}
			o.end(server)
			storetest.Eventually(t, healing, "healed", admits(s, k))
		})
	}
}

// busy lets the server run an endless script.
func busy(s *redisproc.Server) {
	c, err := redisproc.Dial(s.Addr())
	if err != nil {
		panic(err)
	}
	c.Send("EVAL", "while true do end", "0")
	for {
		probe, err := redisproc.Dial(s.Addr())
		if err != nil {
			continue
		}
		_, err = probe.Do("PING")
		probe.Close()
		var reply redisproc.ReplyError
		if errors.As(err, &reply) {
			return
		}
	}
}

// TestSlotsSurviveDataLoss: a server that lost everything learns again who holds
// what, before the ttl of anybody is over.
func TestSlotsSurviveDataLoss(t *testing.T) {
	server := redisproc.Start(t)
	const ttl = contractTTL
	s := newStore(t, redisstore.Options{Address: server.Addr(), LeaseTTL: ttl, Timeout: patient})
	k := oneTake(1_000_000, 1)
	mustAdmit(t, s, k)
	full := func() bool {
		v, err := s.Peek(context.Background(), k)
		return err == nil && v.Full[0]
	}
	server.Do("FLUSHALL")
	storetest.Eventually(t, ttl, "the slot is stated again", full)
	server.Restart()
	storetest.Eventually(t, healing+ttl, "the slot is stated after a restart", full)
}

// TestStoppedUnderLoad: a server stopped under load costs each caller its budget
// at most, and nobody is admitted meanwhile.
func TestStoppedUnderLoad(t *testing.T) {
	server := redisproc.Start(t)
	s := newStore(t, redisstore.Options{Address: server.Addr(), Timeout: budget})
	k := oneTake(1_000_000, 0)
	storetest.Eventually(t, healing, "usable", admits(s, k))
	// Of the calls that waited, the fastest: a machine that stands still makes others slower.
	waited := time.Duration(math.MaxInt64)
	server.Stop()
	for end := time.Now().Add(time.Second); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		start := time.Now()
		if v, err := s.Admit(context.Background(), k); v.OK || !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("stopped: got %+v, %v", v, err)
		}
		if took := time.Since(start); took >= budget {
			waited = min(waited, took)
		}
	}
	if waited < math.MaxInt64 && waited > budget+300*time.Millisecond {
		t.Errorf("every call that waited took %v or more on a stopped server", waited)
	}
	server.Cont()
	storetest.Eventually(t, healing, "healed", admits(s, k))
}
