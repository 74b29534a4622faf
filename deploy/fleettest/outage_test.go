package fleettest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// The outage: 200 requests a second before, during and after a freeze of Redis.
const (
	interval = 5 * time.Millisecond
	before   = 2 * time.Second
	frozen   = 5 * time.Second
	after    = 4 * time.Second
	warmUp   = 20 // requests to each replica before
	// slack is how much longer than normal an answer may take, always.
	slack = 250 * time.Millisecond
	// onTheWay is how long into the freeze replies may still arrive.
	onTheWay = 20 * time.Millisecond
	// healing is how long after the freeze the store may be taken for unusable.
	healing = 3 * time.Second
	// steady is how many decisions in a row show that it is healed for good. A
	// busy machine may miss the store's deadline of 50 ms now and then.
	steady = 20
)

// depth of a bucket that hardly refills: 0.03 a second. What is missing from
// it has been taken.
const depth = 100_000

func outageConfig(mode string) string {
	return fmt.Sprintf(`
redis: {mode: standalone, address: "REDIS", on_outage: %s}
rate_limiting:
  per_api_key: {requests: {limit: %d, per: 1000h}}
`, mode, depth)
}

// outage is what a run through a freeze has shown.
type outage struct {
	fleet        []*replica
	provider     *bench.Upstream
	warm         []answer   // before anything is measured
	answers      []answer   // the i-th was given by replica i modulo their number
	controls     [][]answer // of each replica, and the last of the test itself
	stopped, run time.Time  // when Redis was frozen, and let go
}

// throughFreeze sends requests in an open loop and freezes Redis in between.
func throughFreeze(t *testing.T, mode string) *outage {
	t.Helper()
	redis, provider := redisproc.Start(t), startProvider(t)
	o := &outage{fleet: startFleet(t, 2, redis.Addr(), provider.URL, outageConfig(mode)), provider: provider}
	for _, r := range o.fleet { // connections open, scripts loaded
		for range warmUp {
			o.warm = append(o.warm, ask(t.Context(), r, 0))
		}
	}
	provider.Ledger().Reset()
	stop := o.control(t)
	o.answers = make([]answer, int((before+frozen+after)/interval))
	var all sync.WaitGroup
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for i := range o.answers {
		switch i {
		case int(before / interval):
			redis.Stop()
			o.stopped = time.Now()
		case int((before + frozen) / interval):
			redis.Cont()
			o.run = time.Now()
		}
		all.Go(func() { o.answers[i] = ask(t.Context(), o.fleet[i%len(o.fleet)], 0) })
		<-ticker.C
	}
	all.Wait()
	stop()
	return o
}

// control asks every replica for /livez all the time, which needs no store,
// and takes the time of doing nothing: what those take, the machine takes. The
// returned function ends it.
func (o *outage) control(t *testing.T) (stop func()) {
	o.controls = make([][]answer, len(o.fleet)+1)
	end := make(chan struct{})
	var all sync.WaitGroup
	repeat := func(i int, do func()) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			a := answer{sent: time.Now()}
			do()
			select {
			case <-end:
				return
			case <-ticker.C:
			}
			a.took = time.Since(a.sent)
			o.controls[i] = append(o.controls[i], a)
		}
	}
	for i, r := range o.fleet {
		all.Go(func() {
			repeat(i, func() {
				if res, err := client.Get(r.admin + "/livez"); err == nil {
					res.Body.Close()
				} else {
					t.Error(err)
				}
			})
		})
	}
	all.Go(func() { repeat(len(o.fleet), func() {}) })
	return func() { close(end); all.Wait() }
}

// pause is how long the machine may have held up the i-th request: the longest
// controls of its replica and of this process while it was under way, twice,
// because a request visits both twice (on to the provider, and back).
func (o *outage) pause(i int) (sum time.Duration) {
	a := o.answers[i]
	for _, controls := range [][]answer{o.controls[i%len(o.fleet)], o.controls[len(o.fleet)]} {
		longest := time.Duration(0)
		for _, c := range controls {
			if c.sent.Before(a.sent.Add(a.took)) && a.sent.Before(c.sent.Add(c.took)) {
				longest = max(longest, c.took)
			}
		}
		sum += 2 * longest
	}
	return sum
}

// median of the times that answers to requests between two instants took.
func median(answers []answer, from, to time.Time) time.Duration {
	var took []time.Duration
	for _, a := range answers {
		if a.sent.After(from) && a.sent.Before(to) {
			took = append(took, a.took)
		}
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// check holds what is so in every mode. decided tells answers behind which
// stands a decision of the store.
func (o *outage) check(t *testing.T, decided func(answer) bool) {
	t.Helper()
	o.checkTimes(t)
	yes, missed, healed := 0, 0, time.Time{}
	for _, a := range o.answers {
		inFreeze := a.sent.After(o.stopped.Add(onTheWay)) && a.sent.Add(a.took).Before(o.run)
		switch {
		case decided(a):
			if yes++; inFreeze {
				t.Errorf("%v into the freeze: %v, as if Redis had decided", a.sent.Sub(o.stopped), a)
			}
			if a.sent.After(o.run) && healed.IsZero() {
				healed = a.sent
			}
		case !inFreeze:
			missed++
		}
	}
	t.Logf("%d decided, %d not; first decision %v after Redis was back", yes, len(o.answers)-yes, healed.Sub(o.run))
	if healed.IsZero() || healed.Sub(o.run) > healing {
		t.Errorf("the first decision came %v after Redis was back, want one within %v", healed.Sub(o.run), healing)
	}
	// What the first and last steps of this test take is in the account, too.
	for _, a := range o.warm {
		if decided(a) {
			yes++
		} else {
			missed++
		}
	}
	row := 0
	eventually(t, startTimeout, "the store decides again, for good", func() bool {
		for _, r := range o.fleet {
			if a := ask(t.Context(), r, 0); decided(a) {
				yes, row = yes+1, row+1
			} else {
				missed, row = missed+1, 0
			}
		}
		return row >= steady
	})
	o.checkBucket(t, yes, missed)
}

// checkTimes finds answers that came later than the machine explains.
func (o *outage) checkTimes(t *testing.T) {
	t.Helper()
	start := o.answers[0].sent
	normal := median(o.answers, start, o.stopped)
	slowest := time.Duration(0)
	for i, a := range o.answers {
		slowest = max(slowest, a.took)
		if allowed := normal + slack + o.pause(i); a.took > allowed {
			t.Errorf("%v after the freeze began: %v, allowed were %v", a.sent.Sub(o.stopped), a, allowed)
		}
	}
	t.Logf("normal %v, slowest %v", normal, slowest)
	for i, controls := range o.controls {
		// The freeze itself must not be what slows a replica down.
		free, hung := median(controls, start, o.stopped), median(controls, o.stopped, o.run)
		if hung > free+slack/2 {
			t.Errorf("control %d takes %v while Redis hangs, %v before", i, hung, free)
		}
	}
}

// checkBucket compares what is missing from the bucket with the decisions that
// the store made. missed calls were late while Redis ran: each may have been
// carried out just before its deadline.
func (o *outage) checkBucket(t *testing.T, decided, missed int) {
	t.Helper()
	last := ask(t.Context(), o.fleet[0], 0)
	left, err := strconv.Atoi(last.header.Get("x-ratelimit-remaining-requests"))
	if err != nil || last.header.Get("x-headway-degraded") != "" {
		t.Fatalf("the store does not tell the level of the bucket: %v", last)
	}
	decided++ // the last
	// Redis may have been frozen after a script ran and before its reply left.
	const cutOff = 1
	taken := depth - left
	t.Logf("%d were taken from the bucket for %d decisions", taken, decided)
	if taken < decided || taken > decided+missed+cutOff {
		t.Errorf("%d were taken from the bucket for %d requests that the store let through (and %d that it answered too late)", taken, decided, missed)
	}
}

func TestFrozenRedisFailsClosed(t *testing.T) {
	o := throughFreeze(t, "fail_closed")
	admitted := 0
	for _, a := range o.answers {
		switch {
		case a.status == http.StatusOK:
			admitted++
		case a.status != http.StatusServiceUnavailable || a.refusal().Error.Code != "limiter_unavailable" || a.header.Get("Retry-After") == "":
			t.Fatalf("%v after the freeze began: %v, want 200, or 503 limiter_unavailable with Retry-After", a.sent.Sub(o.stopped), a)
		}
	}
	if starts := o.provider.Ledger().Snapshot().Total.Starts; starts != int64(admitted) {
		t.Errorf("the provider saw %d requests, %d were answered 200", starts, admitted)
	}
	o.check(t, func(a answer) bool { return a.status == http.StatusOK })
}

func TestFrozenRedisFailsOpen(t *testing.T) {
	o := throughFreeze(t, "fail_open")
	for _, a := range o.answers {
		if a.status != http.StatusOK {
			t.Fatalf("%v after the freeze began: %v, want 200", a.sent.Sub(o.stopped), a)
		}
	}
	if starts := o.provider.Ledger().Snapshot().Total.Starts; starts != int64(len(o.answers)) {
		t.Errorf("the provider saw %d requests, %d were answered 200", starts, len(o.answers))
	}
	o.check(t, func(a answer) bool { return a.header.Get("x-headway-degraded") != "open" })
}

func TestReplicaStartsWithoutRedis(t *testing.T) {
	redis, provider := redisproc.Start(t), startProvider(t)
	redis.Kill()
	r := startReplica(t, configuration(redis.Addr(), provider.URL, "", outageConfig("fail_closed")))
	if status, body := r.fetch(t, "/livez"); status != http.StatusOK {
		t.Errorf("/livez without Redis: %d %s, want 200", status, body)
	}
	status, body := r.fetch(t, "/readyz")
	if status != http.StatusServiceUnavailable {
		t.Errorf("/readyz without Redis: %d, want 503", status)
	}
	t.Logf("/readyz without Redis: %s", body)
	if a := ask(t.Context(), r, 0); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("a request without Redis: %v, want 503 with Retry-After", a)
	}

	redis.Restart()
	took := eventually(t, startTimeout, "the replica is ready", func() bool { return r.ready(t) })
	t.Logf("ready %v after Redis was", took)
	// One that the machine holds up for longer than the store's deadline may fail.
	eventually(t, startTimeout, "a request is served with Redis back", func() bool {
		return ask(t.Context(), r, 0).status == http.StatusOK
	})
}
