package batch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// enqueue makes a batch of n jobs of one cost for a tenant, and starts it.
func enqueue(t *testing.T, s store, tenant string, weight float64, n int, cost int64) {
	t.Helper()
	id := "batch_" + tenant
	f := upload{tenant: tenant, id: "file-" + tenant, name: "in", life: time.Hour, most: 10}
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"custom_id":"%d"}`, i)
	}
	for first := 0; first < n; first += maxPutLines {
		end, size := min(n, first+maxPutLines), int64(-1)
		if end == n {
			size = int64(n)
		}
		if said, err := s.put(t.Context(), f, int64(first), lines[first:end], size); said != "ok" || err != nil {
			t.Fatal(said, err)
		}
	}
	said, err := s.submit(t.Context(), []string{
		tenant, id, f.id, "3600000", "3600000", fmt.Sprint(weight), "100000", "10", "out-" + id, "err-" + id, "endpoint", "/v1/x"})
	if err != nil || said.text(0) != "ok" {
		t.Fatal(said, err)
	}
	if ok, err := s.check(t.Context(), id, 0, strings.Repeat(fmt.Sprintf("%010d", cost), n), "start", "", time.Hour); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// order claims n jobs, a few at a time, as replicas would, and returns their tenants.
func order(t *testing.T, s store, n, each int) (tenants []string) {
	t.Helper()
	for len(tenants) < n {
		jobs, _, _, err := s.claim(t.Context(), each, time.Hour)
		if err != nil || len(jobs) == 0 {
			t.Fatalf("after %d claims: %d more, %v", len(tenants), len(jobs), err)
		}
		for _, j := range jobs {
			tenants = append(tenants, strings.TrimPrefix(j.batch, "batch_"))
		}
	}
	return tenants
}

func TestFairBetweenTenants(t *testing.T) {
	s := store{dial(t, redisproc.Start(t).Addr())}
	flush := func() {
		if _, err := s.redis.(*plain).conn.Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
	}
	// 500 jobs of one, then 3 of another: those are 2nd, 4th and 6th.
	for _, each := range []int{1, 8} {
		enqueue(t, s, "big", 1, 500, 100)
		enqueue(t, s, "small", 1, 3, 100)
		if got := strings.Join(order(t, s, 8, each)[:8], " "); got != "big small big small big small big big" {
			t.Errorf("claims of %d: %s", each, got)
		}
		flush()
	}
	// Long and short jobs get equal totals, and weight 3 three times as much.
	share := func(costs map[string]int64, claims int) map[string]int64 {
		got := map[string]int64{}
		for _, tenant := range order(t, s, claims, 8) {
			got[tenant] += costs[tenant]
		}
		flush()
		return got
	}
	enqueue(t, s, "long", 1, 200, 1000)
	enqueue(t, s, "short", 1, 2000, 100)
	got := share(map[string]int64{"long": 1000, "short": 100}, 1100)
	if q := float64(got["long"]) / float64(got["short"]); q < 0.98 || q > 1.02 {
		t.Errorf("long and short jobs got %v tokens", got)
	}
	enqueue(t, s, "heavy", 3, 2000, 100)
	enqueue(t, s, "light", 1, 2000, 100)
	got = share(map[string]int64{"heavy": 100, "light": 100}, 1200)
	if q := float64(got["heavy"]) / float64(got["light"]); q < 2.85 || q > 3.15 {
		t.Errorf("weights 3 and 1 got %v tokens", got)
	}
}

// TestRealCostIsSettled: jobs that cost ten times their estimate move their tenant's
// turn on by as much.
func TestRealCostIsSettled(t *testing.T) {
	s := store{dial(t, redisproc.Start(t).Addr())}
	enqueue(t, s, "liar", 1, 1000, 100)
	enqueue(t, s, "honest", 1, 1000, 1000)
	spent := map[string]int64{}
	for range 400 {
		jobs, _, _, err := s.claim(t.Context(), 1, time.Hour)
		if err != nil || len(jobs) != 1 {
			t.Fatal(len(jobs), err)
		}
		if said, err := s.done(t.Context(), jobs[0], "o", "{}", 1000); said != doneRecorded || err != nil {
			t.Fatal(said, err)
		}
		spent[jobs[0].batch] += 1000
	}
	if a, b := spent["batch_liar"], spent["batch_honest"]; a-b > 2000 || b-a > 2000 {
		t.Errorf("both cost the same, and got %v", spent)
	}
}

// TestPause: a job that goes back pauses its tenant, not the others, and it is the
// first of its tenant afterwards.
func TestPause(t *testing.T) {
	servers(t, func(t *testing.T, r *plain) {
		s := store{r}
		enqueue(t, s, "a", 1, 3, 1)
		jobs, _, _, err := s.claim(t.Context(), 1, time.Hour)
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		const pause = time.Second
		begin := time.Now()
		if ours, err := s.back(t.Context(), jobs[0], pause, pause); !ours || err != nil {
			t.Fatal(ours, err)
		}
		enqueue(t, s, "b", 1, 1, 1)
		if got := order(t, s, 1, 4); len(got) != 1 || got[0] != "b" {
			if time.Since(begin) < pause {
				t.Errorf("during the pause %v were claimed", got)
			}
			return // this machine stood still for the whole pause: nothing is left to look at
		}
		var next []*job
		for end := time.Now().Add(10 * time.Second); len(next) == 0 && time.Now().Before(end); {
			var wait time.Duration
			if next, wait, _, err = s.claim(t.Context(), 1, time.Hour); err != nil {
				t.Fatal(err)
			}
			if len(next) == 0 {
				if wait > pause {
					t.Fatalf("told to wait %v", wait)
				}
				<-time.After(wait)
			}
		}
		if len(next) != 1 || next[0].number != 0 || next[0].backs != 1 {
			t.Errorf("after the pause: %+v", next)
		}
	})
}
