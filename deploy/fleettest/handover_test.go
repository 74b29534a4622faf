package fleettest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// TestHandOver: an agent of four slots, three replicas, and always about forty requests
// of two tenants that wait. Slots stay busy, tenants take turns, and who is next is
// served soon after a slot came free, on whichever replica it was.
//
// What is asserted is what a machine that does much else at the same time cannot break;
// the figures of one that does not are in the log.
func TestHandOver(t *testing.T) {
	const slots, clients, length = 4, 40, 4 * time.Second
	c := startCrew(t, 3, "slots: 2, models: [sim", "slots: 4, models: [sim")
	c.slots = slots
	rnd := rand.New(rand.NewPCG(5, 5))
	release := c.occupy()
	var all sync.WaitGroup
	var until time.Time
	for i := range clients {
		q := call{replica: i % 3, prefix: "/workspaces/patient", path: "/chat/completions", key: []string{"sk-ann", "sk-bob"}[i/2%2], model: "sim"}
		var keep []time.Duration
		for range 50 {
			keep = append(keep, 200*time.Millisecond+time.Duration(rnd.IntN(200))*time.Millisecond)
		}
		all.Go(func() {
			for n := 0; n == 0 || time.Now().Before(until); n++ {
				q.latency = keep[n%len(keep)]
				if a := c.send(t.Context(), q); a.status != http.StatusOK && !strings.Contains(a.body, "queue_timeout") {
					t.Errorf("%v: %v", q, a)
				}
			}
		})
	}
	c.waiting(clients)
	until = time.Now().Add(length)
	c.one.Ledger().Reset()
	release()
	all.Wait()

	starts, ends := c.one.Ledger().Starts(), c.one.Ledger().Ends()
	ends = ends[slots:] // of those that held the slots until it began
	starts = slices.DeleteFunc(starts, func(s bench.Arrival) bool { return s.At > length })
	var idle []time.Duration
	lead, worst := 0, 0
	for i, s := range starts {
		if i >= slots && i-slots < len(ends) {
			idle = append(idle, s.At-ends[i-slots].At)
		}
		lead += map[string]int{"sk-ann": 1, "sk-bob": -1}[s.Tenant]
		worst = max(worst, lead, -lead)
	}
	peak := c.one.Ledger().Snapshot().Total.Peak
	var free time.Duration
	for _, d := range idle {
		free += d
	}
	span := starts[len(starts)-1].At - starts[0].At
	busy := 1 - float64(free)/float64(slots*span)
	slices.Sort(idle)
	median, late := idle[len(idle)/2], idle[len(idle)*99/100]
	t.Logf("%d requests in %v, peak %d, busy %.4f, a free slot taken after %v (median), %v (p99), one tenant at most %d ahead",
		len(starts), span.Round(time.Millisecond), peak, busy, median, late, worst)
	if peak > slots {
		t.Errorf("%d requests ran at once at an agent of %d slots", peak, slots)
	}
	if busy < 0.8 || median > 100*time.Millisecond {
		t.Errorf("slots were busy for %.2f of the time, and taken after %v in the median", busy, median)
	}
	if worst > 2*slots {
		t.Errorf("one tenant was %d requests ahead of the other", worst)
	}
}

// TestSwitchWhileRequestsWait: when the owner turns queueing off, those that wait keep
// what they were promised, and within a second new ones are shed on every replica.
func TestSwitchWhileRequestsWait(t *testing.T) {
	c := startCrew(t, 3)
	release := c.occupy()
	var waits sync.WaitGroup
	const before = 9
	for i := range before {
		q := call{replica: i % 3, prefix: "/workspaces/patient", path: "/chat/completions", key: "sk-ann", model: "sim"}
		waits.Go(func() { c.served(q, c.send(t.Context(), q)) })
	}
	c.waiting(before)
	if status := c.patch("sk-bob", "patient", false); status != http.StatusForbidden {
		t.Errorf("a member turned queueing off: %d", status)
	}
	if status := c.patch("sk-ann", "patient", false); status != http.StatusOK {
		t.Fatalf("the owner could not turn queueing off: %d", status)
	}
	patched := time.Now()
	for i := range c.replicas {
		q := call{replica: i, prefix: "/workspaces/patient", path: "/chat/completions", key: "sk-ann", model: "sim"}
		var a answer
		eventually(t, 5*time.Second, fmt.Sprintf("replica %d sheds", i), func() bool {
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // it may still wait
			defer cancel()
			a = c.send(short, q)
			return a.err == nil
		})
		c.refused(q, a, http.StatusTooManyRequests, "capacity_exceeded")
	}
	if took := time.Since(patched); took > 2*time.Second { // a second, and a machine that is busy
		t.Errorf("in force everywhere after %v", took)
	} else {
		t.Logf("in force everywhere after %v", took)
	}
	c.waiting(before) // nobody was sent away
	release()
	waits.Wait()
	if peak := c.one.Ledger().Snapshot().Total.Peak; peak > agentSlots {
		t.Errorf("%d requests ran at once at an agent of %d slots", peak, agentSlots)
	}
}

// patch turns the queueing of a workspace on or off.
func (c *crew) patch(key, workspace string, on bool) (status int) {
	c.t.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"inference_queueing_enabled": %v}`, on))
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPatch, c.replicas[0].url+"/api/workspaces/"+workspace, body)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}
