package fleettest

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// slots is the in-flight cap of the tests, leaseTTL what a dead replica's slots
// outlive it by.
const (
	slots    = 5
	leaseTTL = 5 * time.Second
)

// cappedConfig has a long store timeout: a slow machine is not what is tested.
const cappedConfig = `
redis: {mode: standalone, address: "REDIS", timeout: 2s}
rate_limiting:
  lease_ttl: 5s
  per_user: {max_in_flight_requests: 5}
`

// isInFlightRefusal reports whether an answer is what the cap must give.
func isInFlightRefusal(a answer) bool {
	return a.status == http.StatusTooManyRequests && a.refusal().Error.Details.LimitType == "inflight" && a.header.Get("Retry-After") == "1"
}

func TestInFlightCapHoldsOverTheFleet(t *testing.T) {
	const rounds, parallel = 200, 60
	redis, provider := redisproc.Start(t), startProvider(t)
	fleet := startFleet(t, 3, redis.Addr(), provider.URL, cappedConfig)
	served := 0
	for round := range rounds {
		answers := make([]answer, parallel)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = ask(t.Context(), fleet[i%len(fleet)], 20*time.Millisecond) })
		}
		all.Wait()
		for i, a := range answers {
			if a.status == http.StatusOK {
				served++
			} else if !isInFlightRefusal(a) {
				t.Fatalf("round %d, request %d: %v, want 200 or the in-flight refusal", round, i, a)
			}
		}
	}
	total := provider.Ledger().Snapshot().Total
	if total.Peak > slots {
		t.Errorf("%d requests ran at once at the provider, the cap is %d", total.Peak, slots)
	}
	if total.Peak < slots || served < rounds*slots/2 {
		t.Errorf("peak %d, %d served in %d rounds: the load does not reach the cap and proves nothing", total.Peak, served, rounds)
	}
	if total.Starts != int64(served) {
		t.Errorf("the provider saw %d requests, %d were answered 200", total.Starts, served)
	}
}

func TestKilledReplicaGivesItsSlotsBack(t *testing.T) {
	redis, provider := redisproc.Start(t), startProvider(t)
	fleet := startFleet(t, 3, redis.Addr(), provider.URL, cappedConfig)
	var holders sync.WaitGroup
	for range slots {
		holders.Go(func() { ask(t.Context(), fleet[0], time.Minute) })
	}
	eventually(t, startTimeout, "one replica holds all slots", func() bool {
		return provider.Ledger().Snapshot().Total.InFlight == slots
	})
	if a := ask(t.Context(), fleet[1], 0); !isInFlightRefusal(a) {
		t.Fatalf("all slots are taken, another replica answers %v", a)
	}

	killed := time.Now()
	fleet[0].kill()
	holders.Wait()
	eventually(t, 3*leaseTTL, "another replica is granted a slot", func() bool {
		return ask(t.Context(), fleet[1], 0).status == http.StatusOK
	})
	if waited := time.Since(killed); waited > leaseTTL+quick {
		t.Errorf("a slot was free %v after the kill, want at most %v", waited, leaseTTL+quick)
	}

	// All of them are free, not only one.
	var again sync.WaitGroup
	answers := make([]answer, slots)
	for i := range answers {
		again.Go(func() { answers[i] = ask(t.Context(), fleet[1+i%2], 300*time.Millisecond) })
	}
	again.Wait()
	for _, a := range answers {
		if a.status != http.StatusOK {
			t.Errorf("all slots are free again, and a request gets %v", a)
		}
	}
}
