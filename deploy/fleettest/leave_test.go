package fleettest

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// waitConfig lets one request pass every refill, the others wait for it. The
// long store timeout is for slow machines.
const waitConfig = `
redis: {mode: standalone, address: "REDIS", timeout: 2s}
rate_limiting:
  per_model: {requests: {limit: 1, per: 5s}}
  fair_queuing: {enabled: true, max_wait_ms: 20000, max_queue_depth_per_tenant: 64}
`

const refill = 5 * time.Second

func TestWaitersThatLeaveStartNothing(t *testing.T) {
	const waiters = 50
	redis, provider := redisproc.Start(t), startProvider(t)
	r := startFleet(t, 1, redis.Addr(), provider.URL, waitConfig)[0]
	depth := func() float64 { return r.metric(t, "rate_limit_fair_queue_depth") }

	if a := ask(t.Context(), r, 0); a.status != http.StatusOK {
		t.Fatalf("the first request: %v", a)
	}
	provider.Ledger().Reset()
	leave, closeSockets := context.WithCancel(t.Context())
	answers := make([]answer, waiters)
	var all sync.WaitGroup
	for i := range waiters - 1 {
		all.Go(func() { answers[i] = ask(leave, r, 0) })
	}
	eventually(t, refill, "49 requests wait", func() bool { return depth() == waiters-1 })
	all.Go(func() { answers[waiters-1] = ask(t.Context(), r, 0) })
	eventually(t, refill, "50 requests wait", func() bool { return depth() == waiters })

	closeSockets()
	took := eventually(t, refill, "those who left have left the line", func() bool { return depth() == 1 })
	t.Logf("the line was shorter %v after they left", took)
	all.Wait()
	if stayed := answers[waiters-1]; stayed.status != http.StatusOK {
		t.Errorf("who stayed in line got %v", stayed)
	}
	// Nothing may start later on either: let the bucket fill again.
	<-time.After(refill + time.Second)
	if starts := provider.Ledger().Snapshot().Total.Starts; starts != 1 {
		t.Errorf("the provider saw %d requests of 50 of whom 49 left, want 1", starts)
	}
}

// TestDrainFinishesStreams ends a replica as a process manager does.
func TestDrainFinishesStreams(t *testing.T) {
	redis := redisproc.Start(t)
	provider, err := bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{
		Seed: 1, Tokens: bench.Constant(30), TokenGap: bench.Constant(0.1),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(provider.Close)
	r := startFleet(t, 1, redis.Addr(), provider.URL, waitConfig)[0]

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/chat/completions",
		strings.NewReader(`{"model": "sim", "stream": true, "messages": [{"role": "user", "content": "Hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() {
		t.Fatalf("the stream has no first line: %v", lines.Err())
	}
	waiting := make(chan answer, 1)
	go func() { waiting <- ask(context.WithoutCancel(t.Context()), r, 0) }()
	eventually(t, refill, "a request waits", func() bool { return r.metric(t, "rate_limit_fair_queue_depth") == 1 })

	r.signal(t, syscall.SIGTERM)
	if a := <-waiting; a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("a waiter of a draining replica got %v, want 503 with Retry-After", a)
	}
	last := ""
	for lines.Scan() {
		if lines.Text() != "" {
			last = lines.Text()
		}
	}
	if err := lines.Err(); err != nil || last != "data: [DONE]" {
		t.Errorf("the stream of a draining replica ends with %q (%v), want data: [DONE]", last, err)
	}
	select {
	case <-r.exited:
	case <-time.After(startTimeout):
		t.Fatal("the replica does not end after its last stream")
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("a drained replica exits with %d, want 0", code)
	}
}
