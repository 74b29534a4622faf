package fleettest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// The outage: 200 requests a second before, during and after a freeze of Redis.
const (
	interval = 5 * time.Millisecond
	before   = 2 * time.Second
	frozen   = 5 * time.Second
	after    = 4 * time.Second
	// slack is how much longer than normal an answer may take, always.
	slack = 250 * time.Millisecond
	// settling is how long after the freeze began, or ended, answers may still
	// be of the other kind: a call may have its reply on the way, and a breaker
	// closes within 2 s.
	settling = 100 * time.Millisecond
	healing  = 2 * time.Second
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
	answers      []answer
	stopped, run time.Time // when Redis was frozen, and let go
	normal       time.Duration
}

// during returns the answers to requests sent between two instants.
func (o outage) during(from, to time.Time) (some []answer) {
	for _, a := range o.answers {
		if a.sent.After(from) && a.sent.Before(to) {
			some = append(some, a)
		}
	}
	return some
}

// throughFreeze sends requests in an open loop and freezes Redis in between.
func throughFreeze(t *testing.T, redis *redisproc.Server, fleet []*replica) (o outage) {
	t.Helper()
	for _, r := range fleet { // connections open, scripts loaded
		for range 20 {
			ask(t.Context(), r, 0)
		}
	}
	o.answers = make([]answer, int((before+frozen+after)/interval))
	var all sync.WaitGroup
	start := time.Now()
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
		all.Go(func() { o.answers[i] = ask(t.Context(), fleet[i%len(fleet)], 0) })
		<-ticker.C
	}
	all.Wait()
	var normal []time.Duration
	for _, a := range o.during(start, o.stopped.Add(-slack)) {
		normal = append(normal, a.took)
	}
	slices.Sort(normal)
	o.normal = normal[len(normal)/2]
	return o
}

// check holds what is so in every mode: no answer is late, and what is missing
// from the bucket was taken for requests that were let through.
func (o outage) check(t *testing.T, fleet []*replica, decided int) {
	t.Helper()
	var slowest time.Duration
	for _, a := range o.answers {
		slowest = max(slowest, a.took)
	}
	t.Logf("normal %v, slowest %v", o.normal, slowest)
	if slowest > o.normal+slack {
		t.Errorf("an answer took %v, normal is %v, want at most %v more", slowest, o.normal, slack)
	}
	last := ask(t.Context(), fleet[0], 0)
	left, err := strconv.Atoi(last.header.Get("x-ratelimit-remaining-requests"))
	if err != nil {
		t.Fatalf("after the outage: %v, without the level of the bucket", last)
	}
	// Redis may have been frozen after a script ran and before its reply left.
	const cutOff = 1
	taken := depth - left - 1 // that last one
	t.Logf("taken %d, decided %d", taken, decided)
	if phantoms := taken - decided; phantoms > cutOff || phantoms < 0 {
		t.Errorf("%d were taken from the bucket for %d requests that the store let through", taken, decided)
	}
}

func TestFrozenRedisFailsClosed(t *testing.T) {
	redis, provider := redisproc.Start(t), startProvider(t)
	fleet := startFleet(t, 2, redis.Addr(), provider.URL, outageConfig("fail_closed"))
	o := throughFreeze(t, redis, fleet)
	warmUp := 20 * len(fleet)
	admitted := 0
	for _, a := range o.answers {
		switch {
		case a.status == http.StatusOK:
			admitted++
		case a.status != http.StatusServiceUnavailable || a.refusal().Error.Code != "limiter_unavailable" || a.header.Get("Retry-After") == "":
			t.Fatalf("sent %v after the freeze: %v, want 200, or 503 limiter_unavailable with Retry-After", a.sent.Sub(o.stopped), a)
		}
	}
	for _, a := range o.during(o.stopped.Add(settling), o.run) {
		if a.status == http.StatusOK && a.sent.Add(a.took).Before(o.run) {
			t.Errorf("admitted %v into the freeze", a.sent.Sub(o.stopped))
		}
	}
	for _, a := range o.during(o.run.Add(healing), time.Now()) {
		if a.status != http.StatusOK {
			t.Errorf("%v after Redis was back: %v", a.sent.Sub(o.run), a)
		}
	}
	if starts := provider.Ledger().Snapshot().Total.Starts; starts != int64(admitted+warmUp) {
		t.Errorf("the provider saw %d requests, %d were answered 200", starts, admitted+warmUp)
	}
	o.check(t, fleet, admitted+warmUp)
}

func TestFrozenRedisFailsOpen(t *testing.T) {
	redis, provider := redisproc.Start(t), startProvider(t)
	fleet := startFleet(t, 2, redis.Addr(), provider.URL, outageConfig("fail_open"))
	o := throughFreeze(t, redis, fleet)
	warmUp := 20 * len(fleet)
	undecided := 0
	for _, a := range o.answers {
		if a.status != http.StatusOK {
			t.Fatalf("sent %v after the freeze: %v, want 200", a.sent.Sub(o.stopped), a)
		}
		if a.header.Get("x-headway-degraded") == "open" {
			undecided++
		}
	}
	for _, a := range o.during(o.stopped.Add(settling), o.run.Add(-settling)) {
		if a.header.Get("x-headway-degraded") != "open" {
			t.Errorf("%v into the freeze an answer does not say that it was let through unchecked", a.sent.Sub(o.stopped))
		}
	}
	for _, a := range o.during(o.run.Add(healing), time.Now()) {
		if a.header.Get("x-headway-degraded") != "" {
			t.Errorf("%v after Redis was back requests are still let through unchecked", a.sent.Sub(o.run))
		}
	}
	if starts := provider.Ledger().Snapshot().Total.Starts; starts != int64(len(o.answers)+warmUp) {
		t.Errorf("the provider saw %d requests, %d were answered 200", starts, len(o.answers)+warmUp)
	}
	o.check(t, fleet, len(o.answers)+warmUp-undecided)
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
	if a := ask(t.Context(), r, 0); a.status != http.StatusOK {
		t.Errorf("a request with Redis back: %v", a)
	}
}
