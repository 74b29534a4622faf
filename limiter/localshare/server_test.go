package localshare_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/localshare"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// Every kind of trouble of a real server, under every policy. Three replicas ask
// one server for 20 ms each, one per policy, each for a bucket of its own.

const (
	budget  = 200 * time.Millisecond // four times the default, for busy machines
	pace    = 20 * time.Millisecond  // between two requests of a policy
	trouble = 1500 * time.Millisecond
	// allowance is for a machine that is never late.
	allowance = 100 * time.Millisecond
	// promised are the bounds on a machine that has time.
	promisedDetection = 500 * time.Millisecond
	promisedHealing   = 2 * time.Second
)

var policies = []limiter.OutagePolicy{limiter.FailClosed, limiter.FailOpen, limiter.LocalShare}

// slack is how late this machine was, at worst: nothing here can be quicker.
type slack struct {
	stop chan struct{}
	done sync.WaitGroup
	most time.Duration // to be read after end
}

func measure() *slack {
	s := &slack{stop: make(chan struct{})}
	s.done.Go(func() {
		for {
			due := time.Now().Add(5 * time.Millisecond)
			select {
			case <-s.stop:
				return
			case <-time.After(5 * time.Millisecond):
				s.most = max(s.most, time.Since(due))
			}
		}
	})
	return s
}

// end returns what to allow beyond a bound: several goroutines and processes
// wait for the processor one after the other.
func (s *slack) end() time.Duration {
	close(s.stop)
	s.done.Wait()
	return allowance + 4*s.most
}

// answered is one request and what came of it.
type answered struct {
	sent, at time.Time
	degraded string
	failed   bool // ErrUnavailable
	ok       bool
}

// subject is one replica under a policy.
type subject struct {
	policy  limiter.OutagePolicy
	store   *redisstore.Store
	share   *localshare.Store
	limiter *limiter.Limiter
	rate    limiter.Rate
	user    limiter.ID
	begun   time.Time

	mu   sync.Mutex
	list []answered
}

func newSubject(t *testing.T, addr string, p limiter.OutagePolicy) *subject {
	t.Helper()
	s := &subject{policy: p, begun: time.Now(), user: limiter.Hash(limiter.User, string(p)), rate: limiter.Rate{Limit: 100, Per: 1000 * time.Hour, Burst: 100_000}}
	if p == limiter.LocalShare {
		s.rate = limiter.Rate{Limit: 30, Per: time.Second, Burst: 30}
	}
	quiet := slog.New(slog.DiscardHandler)
	var err error
	if s.store, err = redisstore.New(redisstore.Options{Address: addr, Timeout: budget, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	cfg := limiter.Config{
		Limits: map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{Requests: &s.rate, MaxInFlight: 1000}}}, DefaultOutage: p, Logger: quiet,
	}
	if s.share, err = localshare.New(localshare.Options{Inner: s.store, Registry: s.store, Policy: cfg.OutageOf, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	if s.limiter, err = limiter.New(cfg, s.share, fleet.Solo(string(p))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.limiter.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.share.Close(ctx)
	})
	return s
}

// ask sends one request and ends it at once.
func (s *subject) ask() answered {
	a := answered{sent: time.Now()}
	g, err := s.limiter.Admit(context.Background(), limiter.Request{Identities: limiter.Identities{User: s.user}})
	a.at = time.Now()
	var refusal *limiter.Refusal
	switch {
	case err == nil:
		a.ok, a.degraded = true, g.Degraded()
		g.Done(limiter.Outcome{})
	case errors.As(err, &refusal):
		a.degraded = refusal.Degraded
	default:
		a.failed = errors.Is(err, limiter.ErrUnavailable)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, a)
	return a
}

// soFar is every answer until now, by its instant.
func (s *subject) soFar() []answered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(slices.Values(s.list), func(a, b answered) int { return a.at.Compare(b.at) })
}

// load asks in an open loop until stop is closed.
func (s *subject) load(stop chan struct{}) {
	var calls sync.WaitGroup
	defer calls.Wait()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			calls.Go(func() { s.ask() })
		}
	}
}

// kind is one way to lose a server.
type kind struct {
	name       string
	begin, end func(*redisproc.Server, *relay)
	// harmless troubles fail no request; forgets means that the data are lost.
	harmless, forgets bool
}

var kinds = []kind{
	{name: "down", begin: func(s *redisproc.Server, _ *relay) { s.Kill() }, end: func(s *redisproc.Server, _ *relay) { s.Restart() }, forgets: true},
	{name: "hung", begin: func(s *redisproc.Server, _ *relay) { s.Stop() }, end: func(s *redisproc.Server, _ *relay) { s.Cont() }},
	{name: "slow", begin: func(_ *redisproc.Server, r *relay) { r.delay.Store(int64(2 * budget)) }, end: func(_ *redisproc.Server, r *relay) { r.delay.Store(0) }},
	{name: "read-only", begin: func(s *redisproc.Server, _ *relay) { s.Do("REPLICAOF", "127.0.0.1", "1") },
		end: func(s *redisproc.Server, _ *relay) { s.Do("REPLICAOF", "NO", "ONE") }},
	{name: "out of memory", begin: func(s *redisproc.Server, _ *relay) { s.Do("CONFIG", "SET", "maxmemory", "1") },
		end: func(s *redisproc.Server, _ *relay) { s.Do("CONFIG", "SET", "maxmemory", "0") }},
	{name: "busy script", begin: endless, end: func(s *redisproc.Server, _ *relay) { s.Do("SCRIPT", "KILL") }},
	{name: "loading", begin: reload, end: func(s *redisproc.Server, _ *relay) { loaded(s) }},
	{name: "scripts flushed", begin: func(s *redisproc.Server, _ *relay) { s.Do("SCRIPT", "FLUSH") }, end: func(*redisproc.Server, *relay) {}, harmless: true},
	{name: "connections killed", begin: func(s *redisproc.Server, _ *relay) { s.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") },
		end: func(*redisproc.Server, *relay) {}, harmless: true},
}

// endless runs a script that does not end by itself.
func endless(s *redisproc.Server, _ *relay) {
	c, err := redisproc.Dial(s.Addr())
	if err != nil {
		panic(err)
	}
	c.Send("EVAL", "while true do end", "0")
	answers(s, "BUSY")
}

// answers waits until the server refuses with an error that begins so.
func answers(s *redisproc.Server, code string) {
	for {
		_, err := s.Try("PING")
		var reply redisproc.ReplyError
		if errors.As(err, &reply) && strings.HasPrefix(string(reply), code) {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// reload lets the server load its data again, for about as long as trouble lasts.
func reload(s *redisproc.Server, _ *relay) {
	s.Do("DEBUG", "POPULATE", fmt.Sprint(trouble.Milliseconds()), "filler", "20")
	s.Do("CONFIG", "SET", "key-load-delay", "900")
	c, err := redisproc.Dial(s.Addr())
	if err != nil {
		panic(err)
	}
	c.Send("DEBUG", "RELOAD")
	answers(s, "LOADING")
}

func loaded(s *redisproc.Server) {
	for {
		if _, err := s.Try("GET", "x"); err == nil {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// stage is a server with one subject per policy.
type stage struct {
	kind
	server   *redisproc.Server
	way      *relay
	subjects []*subject
}

// One kind after the other, so that a busy machine is not made busier; but they
// all begin to count their replicas together.
func TestRealServers(t *testing.T) {
	var stages []*stage
	for _, k := range kinds {
		s := &stage{kind: k, server: redisproc.Start(t, "--busy-reply-threshold", "10", "--loading-process-events-interval-bytes", "1024")}
		addr := s.server.Addr()
		if k.name == "slow" {
			s.way = newRelay(t, addr)
			addr = s.way.listener.Addr().String()
		}
		for _, p := range policies {
			s.subjects = append(s.subjects, newSubject(t, addr, p))
		}
		stages = append(stages, s)
	}
	for _, s := range stages {
		t.Run(s.name, s.run)
	}
}

// informed waits until the replicas of a stage have counted each other for as
// long as a share takes to begin.
func (s *stage) informed(t *testing.T) {
	var since time.Time
	storetest.Eventually(t, 30*time.Second, "three replicas have a share", func() bool {
		for _, u := range s.subjects {
			if u.share.Divisor() != len(s.subjects) || !u.store.Health().Usable {
				since = time.Time{}
				return false
			}
		}
		if since.IsZero() {
			since = s.subjects[0].begun
		}
		return time.Since(since) > 10*time.Second
	})
}

// run takes the server away from three subjects and gives it back.
func (s *stage) run(t *testing.T) {
	s.informed(t)
	r := s.lose(t)
	for _, u := range s.subjects {
		t.Run(string(u.policy), func(t *testing.T) { r.check(t, s.kind, u) })
	}
}

// lost is a run through one trouble.
type lost struct {
	begun, begin, end, ended time.Time // before and after what begins it, and ends it
	allow                    time.Duration
}

func (s *stage) lose(t *testing.T) lost {
	var r lost
	machine, stop, all := measure(), make(chan struct{}), sync.WaitGroup{}
	for _, u := range s.subjects {
		u.ask() // connections and scripts are there
		all.Go(func() { u.load(stop) })
	}
	<-time.After(500 * time.Millisecond)
	r.begun = time.Now()
	s.begin(s.server, s.way)
	r.begin = time.Now()
	if !s.harmless {
		<-time.After(trouble)
	}
	r.end = time.Now()
	s.end(s.server, s.way)
	r.ended = time.Now()
	for end := r.ended.Add(30 * time.Second); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		healed := 0
		for _, u := range s.subjects {
			if r.healed(u.soFar()) != limiter.Never {
				healed++
			}
		}
		if healed == len(s.subjects) {
			break
		}
	}
	close(stop)
	all.Wait()
	r.allow = machine.end()
	return r
}

// steady is how many decisions of the server in a row show that it is back. A
// busy machine may miss a deadline later on.
const steady = 10

// healed is how long after its end the trouble was over for a replica; Never if
// it was not.
func (r lost) healed(list []answered) time.Duration {
	var since time.Time
	row := 0
	for _, a := range list {
		switch {
		case a.at.Before(r.ended):
		case a.failed || a.degraded != "":
			row = 0
		default:
			if row++; row == 1 {
				since = a.at
			}
			if row == steady {
				return since.Sub(r.ended)
			}
		}
	}
	return limiter.Never
}

// check holds what one policy promises.
func (r lost) check(t *testing.T, k kind, s *subject) {
	list := s.soFar()
	healed := r.healed(list)
	var detected, slowest time.Duration
	granted, failed, local, phantom := 0, 0, 0, 0
	for _, a := range list {
		byPolicy := a.failed || a.degraded != ""
		switch {
		case a.failed:
			failed++
		case a.degraded == "local" && a.ok:
			local++
		case a.ok && a.degraded == "":
			granted++
		}
		if byPolicy && a.at.After(r.begun) && (detected == 0 || a.at.Sub(r.begin) < detected) {
			detected = max(time.Nanosecond, a.at.Sub(r.begin))
		}
		if !byPolicy && a.sent.After(r.begin) && a.at.Before(r.end) && !k.harmless {
			phantom++
		}
		slowest = max(slowest, a.at.Sub(a.sent))
		if a.failed && s.policy != limiter.FailClosed || a.degraded == "local" && s.policy != limiter.LocalShare || a.degraded == "open" && s.policy != limiter.FailOpen {
			t.Errorf("answer %+v does not follow %s", a, s.policy)
		}
	}
	t.Logf("detected after %v, healed after %v; %d granted, %d by a share, %d failed; slowest %v; machine late: allow %v",
		detected.Round(time.Millisecond), healed.Round(time.Millisecond), granted, local, failed, slowest.Round(time.Millisecond), r.allow.Round(time.Millisecond))
	if slowest > budget+r.allow {
		t.Errorf("a caller waited %v, the budget is %v", slowest, budget)
	}
	if k.harmless {
		// What is on its way when its connection ends may have run, and is not sent
		// again. And a machine that stands still for a while makes budgets pass.
		most := 0
		if late := (r.allow - allowance) / 4; late > budget/4 {
			most = int(late / pace)
		}
		if k.name == "connections killed" {
			most += 2
		}
		if failed > most {
			t.Errorf("%d requests failed, at most %d may; the first was decided by policy after %v", failed, most, detected)
		}
		return
	}
	// A machine that stands still for longer than a budget shows no ten in a row.
	never := healed == limiter.Never && (r.allow-allowance)/4 < budget
	if detected == 0 || detected > promisedDetection+r.allow || never || healed > promisedHealing+r.allow {
		t.Errorf("detected after %v, healed after %v", detected, healed)
	}
	if phantom > 0 {
		t.Errorf("%d requests were decided as if the server had answered", phantom)
	}
	r.checkTaken(t, k, s, granted, len(list)-granted)
	if s.policy == limiter.LocalShare {
		// Its share is a third, and holds no more than a third of a burst at first.
		long := list[len(list)-1].at.Sub(r.begun)
		most := float64(s.rate.Burst)/3 + float64(s.rate.Limit)/3*long.Seconds()
		least := 0.7 * float64(s.rate.Limit) / 3 * (r.end.Sub(r.begin) - promisedDetection - r.allow).Seconds()
		if float64(local) > most || float64(local) < least {
			t.Errorf("%d granted by a share in %v, want %.0f to %.0f", local, long, least, most)
		}
	}
}

// checkTaken compares what is missing from the bucket with what was granted. What a
// machine that stands still answers too late may also come too late to be given back:
// a give-back is not sent twice, and only counts within a quarter of a second.
func (r lost) checkTaken(t *testing.T, k kind, s *subject, granted, others int) {
	if k.forgets || s.policy == limiter.LocalShare {
		return
	}
	take := limiter.Take{Charges: []limiter.Charge{{Bucket: limiter.BucketID{Dimension: limiter.User, ID: s.user}, Rate: s.rate, Cost: 1}}}
	taken, most := 0, granted+1
	if (r.allow-allowance)/4 > 250*time.Millisecond {
		most += others
	}
	storetest.Eventually(t, 30*time.Second, "late grants are given back", func() bool {
		v, err := s.store.Peek(context.Background(), take)
		if err == nil {
			taken = int(s.rate.Burst - v.Charges[0].Remaining)
		}
		return err == nil && taken <= most
	})
	if taken < granted {
		t.Errorf("%d granted, only %d were taken", granted, taken)
	}
}
