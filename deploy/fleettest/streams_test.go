package fleettest

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// idleStreams is how many event streams stand open through one replica.
const idleStreams = 10_000

// idleConfig lets them all in; the store is the replica's own.
const idleConfig = `
redis: {mode: embedded, timeout: 5s}
rate_limiting:
  per_user: {max_in_flight_requests: 20000}
`

// quiet is a provider that begins an event stream for each request and then says
// nothing until it is told to end them, as a model that thinks. Like real ones it
// speaks HTTP/2, so that the replica needs one descriptor per stream and not two.
type quiet struct {
	*httptest.Server
	over atomic.Pointer[chan struct{}] // closed: the streams that stand open end
}

// startQuiet starts one, with a certificate that replicas started later trust.
func startQuiet(t *testing.T) *quiet {
	t.Helper()
	var q quiet
	q.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		over := *q.over.Load()
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hm\"}}]}\n\n")
		http.NewResponseController(w).Flush()
		select {
		case <-over:
			fmt.Fprint(w, "data: [DONE]\n\n")
		case <-r.Context().Done():
		}
	}))
	q.EnableHTTP2 = true
	q.StartTLS()
	t.Cleanup(q.Close)
	cert := filepath.Join(t.TempDir(), "provider.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: q.Certificate().Raw})
	if err := os.WriteFile(cert, block, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", cert)
	return &q
}

// open begins a stream and reads its first event.
func open(ctx context.Context, c *http.Client, r *replica) (*http.Response, error) {
	body := strings.NewReader(`{"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "stream": true}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	first, err := bufio.NewReaderSize(res.Body, 64).ReadString('\n')
	if err == nil && (res.StatusCode != http.StatusOK || !strings.HasPrefix(first, "data: ")) {
		err = fmt.Errorf("%d: %s", res.StatusCode, first)
	}
	return res, err
}

// idle opens all streams, calls during while they stand still, and ends them:
// every other one leaves, the rest see the provider's end.
func (q *quiet) idle(t *testing.T, r *replica, during func()) {
	t.Helper()
	over := make(chan struct{})
	q.over.Store(&over)
	transport := &http.Transport{DisableCompression: true, ReadBufferSize: 512, WriteBufferSize: 512}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	leaving, leave := context.WithCancel(t.Context())
	defer leave()
	responses := make([]*http.Response, idleStreams)
	var all sync.WaitGroup
	const openers = 16
	for w := range openers {
		all.Go(func() {
			for i := w; i < idleStreams && !t.Failed(); i += openers {
				ctx := t.Context()
				if i%2 == 0 {
					ctx = leaving
				}
				var err error
				if responses[i], err = open(ctx, client, r); err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
			}
		})
	}
	if all.Wait(); t.Failed() {
		t.FailNow()
	}
	during()
	leave()
	close(over)
	for i := 1; i < idleStreams; i += 2 {
		if rest, err := io.ReadAll(responses[i].Body); err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
			t.Fatalf("stream %d ended with %q, %v", i, rest, err)
		}
		responses[i].Body.Close()
	}
}

// TestIdleStreams: what ten thousand streams that stand still cost one replica,
// and that nothing of them stays: neither goroutines, nor more memory after the
// second time than after the first.
func TestIdleStreams(t *testing.T) {
	provider := startQuiet(t)
	patient := strings.NewReplacer("server: {", "server: {pprof: true, timeouts: {total: 1h}, ", "name: provider,", "name: provider, timeouts: {idle: 1h},")
	r := startReplica(t, patient.Replace(configuration("", provider.URL, "", idleConfig)))
	before := r.usage(t)
	var after [2]usage
	for round := range after {
		provider.idle(t, r, func() {
			during := r.usage(t)
			t.Logf("one idle stream: %.1f KiB resident, %.1f KiB of it heap, %.1f goroutines", (during.resident-before.resident)/idleStreams/1024,
				(during.heap-before.heap)/idleStreams/1024, (during.goroutines-before.goroutines)/idleStreams)
			if each := (during.resident - before.resident) / idleStreams; each > 128<<10 {
				t.Errorf("an idle stream holds %.0f bytes of memory, at most 128 KiB", each)
			}
		})
		eventually(t, time.Minute, "goroutines are back", func() bool {
			return r.metric(t, "go_goroutines") < before.goroutines+100 // connections that are kept
		})
		after[round] = r.usage(t)
	}
	t.Logf("before: %v; after once: %v; after twice: %v", before, after[0], after[1])
	if grown := after[1].heap - after[0].heap; grown > 200*idleStreams {
		t.Errorf("%.0f bytes of each stream stay", grown/idleStreams)
	}
}

// usage is what a replica holds, in bytes.
type usage struct{ goroutines, heap, resident float64 }

// String shows it in MiB.
func (u usage) String() string {
	return fmt.Sprintf("%.0f goroutines, heap %.1f MiB, resident %.1f MiB", u.goroutines, u.heap/(1<<20), u.resident/(1<<20))
}

// usage is what is in use once the garbage is collected.
func (r *replica) usage(t *testing.T) usage {
	t.Helper()
	for range 2 { // pools keep what one collection finds
		if status, _ := r.fetch(t, "/debug/pprof/heap?gc=1"); status != http.StatusOK {
			t.Fatalf("a heap profile: %d", status)
		}
	}
	return usage{
		r.metric(t, "go_goroutines"), r.metric(t, "go_memstats_heap_alloc_bytes"), r.metric(t, "process_resident_memory_bytes"),
	}
}
