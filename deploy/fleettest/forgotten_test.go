package fleettest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// forgetPauses are how long after the loss others ask, each an agent of its own: at
// once, before and after all can have noticed, and when all have stated what they hold.
var forgetPauses = []time.Duration{0, 300 * time.Millisecond, 800 * time.Millisecond, 1500 * time.Millisecond}

const (
	forgetSlots = 6               // of each agent: a share of one
	forgetHeld  = 4 * time.Second // longer than all pauses, and than shares are gone by
)

// TestSlotsWhenRedisForgets: one replica holds all slots of some agents while Redis
// loses everything, and others, which are idle and so have seen nothing of that, are
// asked for as many. No agent ever has more than its slots, and all are used again.
func TestSlotsWhenRedisForgets(t *testing.T) {
	losses := map[string]func(*redisproc.Server){
		"killed":  (*redisproc.Server).Restart,
		"flushed": func(s *redisproc.Server) { s.Do("FLUSHALL") },
	}
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forget(t, lose)
		})
	}
}

func forget(t *testing.T, lose func(*redisproc.Server)) {
	var judges []*bench.Upstream
	text := `
redis: {mode: standalone, address: "REDIS", timeout: 250ms}
queueing: {queue_timeout: 1m}
`
	agents, names := "", ""
	for i := range forgetPauses {
		p := startProvider(t)
		judges = append(judges, p)
		agents += fmt.Sprintf(", {name: a%d, url: %q, slots: %d, models: [m%d]}", i, p.URL, forgetSlots, i)
		names += fmt.Sprintf(", a%d", i)
	}
	redis := redisproc.Start(t)
	fleet := startFleetOf(t, 1+len(judges), func(join string) string {
		text := configuration(redis.Addr(), judges[0].URL, join, text)
		text = strings.Replace(text, "upstreams: [", "upstreams: ["+agents[2:]+", ", 1)
		return strings.Replace(text, "upstream: provider", "upstreams: ["+names[2:]+"]", 1)
	})
	var all sync.WaitGroup
	fill := func(r *replica, agent int, latency time.Duration) {
		body := fmt.Sprintf(`{"model": "m%d", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}`, agent)
		for range forgetSlots {
			all.Go(func() {
				if a := send(t.Context(), r, latency, body); a.status != http.StatusOK {
					t.Errorf("agent %d: answer %v", agent, a)
				}
			})
		}
	}
	for i, judge := range judges {
		fill(fleet[0], i, forgetHeld)
		eventually(t, startTimeout, "one replica holds all slots", func() bool {
			return judge.Ledger().Snapshot().Total.InFlight == forgetSlots
		})
	}
	lose(redis)
	lost := time.Now()
	for i, pause := range forgetPauses {
		<-time.After(time.Until(lost.Add(pause)))
		fill(fleet[1+i], i, 200*time.Millisecond)
	}
	all.Wait()
	for i, judge := range judges {
		if peak := judge.Ledger().Snapshot().Total.Peak; peak != forgetSlots {
			t.Errorf("asked %v after the loss, %d requests ran at once at an agent of %d slots", forgetPauses[i], peak, forgetSlots)
		}
	}
}
