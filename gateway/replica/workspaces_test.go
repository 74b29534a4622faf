package replica

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// patience bounds what a busy machine may take.
const patience = 20 * time.Second

// offices is a fleet whose workspaces share one agent of one slot, with a real
// redis-server.
type offices struct {
	t        *testing.T
	redis    *redisproc.Server
	replicas []*Replica
	release  chan struct{} // lets one request that says "hold" go on
	log      safeBuffer
}

// safeBuffer is a log of several replicas.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func openOffices(t *testing.T) *offices {
	t.Helper()
	o := &offices{t: t, redis: redisproc.Start(t, "--rdbcompression", "no"), release: make(chan struct{})}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch text := string(body); {
		case strings.Contains(text, "hold"):
			select {
			case <-o.release:
			case <-r.Context().Done():
			}
		case strings.Contains(text, "break"):
			panic(http.ErrAbortHandler)
		case strings.Contains(text, "refuse"):
			w.WriteHeader(http.StatusBadRequest)
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id": "x", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}`)
	}))
	t.Cleanup(upstream.Close)
	text := fmt.Sprintf(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {mode: standalone, address: %q, timeout: 5s}
keys:
  - {id: a, key: secret-a, user: ann, workspaces: [{id: acme, role: owner}]}
  - {id: b, key: secret-b, user: bob, workspaces: [{id: acme, role: member}]}
workspaces: [{id: acme, name: Acme}]
projects: [{id: site, workspace: acme}]
upstreams:
  - {name: agent, url: %q, slots: 1, models: [m]}
  - {name: nowhere, url: "http://127.0.0.1:1", models: [n]}
routes: [{path: "/v1/*", upstream: agent}, {path: "/v1/embeddings", upstream: nowhere}]
batch: {enabled: true}
rate_limiting: {per_user: {requests: {limit: 1000, per: 1h}}}
`, o.redis.Addr(), upstream.URL)
	for range 3 {
		cfg, err := config.Parse([]byte(text), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Start(t.Context(), cfg, Options{Logger: slog.New(slog.NewTextHandler(&o.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Shutdown(t.Context()) })
		storetest.Eventually(t, patience, "the document was read", func() bool {
			d, known := r.workspaces.Known("acme")
			return known && d.Version > 0
		})
		o.replicas = append(o.replicas, r)
	}
	return o
}

// send sends a request to a replica, and returns status, body and headers.
func (o *offices) send(i int, method, path, key, body string, headers ...string) (int, string, http.Header) {
	o.t.Helper()
	base := o.replicas[i].URL()
	if key == "admin" {
		base, key = o.replicas[i].AdminURL(), ""
	}
	r, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for n := 0; n+1 < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), resp.Header
}

// waiting is how many wait for the agent at a replica.
func (o *offices) waiting(i int) int { return o.replicas[i].gateway.Agents().States()[0].Waiting }

const (
	quick = `{"model": "m", "messages": [{"role": "user", "content": "quick"}]}`
	held  = `{"model": "m", "messages": [{"role": "user", "content": "hold"}]}`
)

// Switched off while requests wait: those keep their promise, new ones are refused on
// all replicas within a second, whatever way they come.
func TestSwitchOffWhileRequestsWait(t *testing.T) {
	o := openOffices(t)
	const path = "/workspaces/acme/v1/chat/completions"
	results := make(chan int, 4)
	for i := range 4 { // one has the slot, three wait
		if i > 0 {
			storetest.Eventually(t, patience, "the slot is taken, or one waits", func() bool {
				return o.replicas[0].gateway.Agents().States()[0].Held == 1 && (i == 1 || o.waiting(i-2) == 1)
			})
		}
		go func() {
			status, _, _ := o.send(max(0, i-1), "POST", path, "secret-a", held)
			results <- status
		}()
	}
	storetest.Eventually(t, patience, "three wait", func() bool { return o.waiting(0)+o.waiting(1)+o.waiting(2) == 3 })

	_, _, h := o.send(1, "GET", "/api/workspaces/acme", "secret-b", "")
	tag := h.Get("ETag")
	off := `{"inference_queueing_enabled": false}`
	for _, c := range []struct {
		key, body, match string
		status           int
	}{{"secret-b", off, tag, 403}, {"secret-a", `{"inference_queueing": false}`, tag, 400}, {"secret-a", off, `"0-0"`, 412}, {"secret-a", off, tag, 200}, {"secret-a", off, tag, 412}} {
		if status, body, _ := o.send(2, "PATCH", "/api/workspaces/acme", c.key, c.body, "If-Match", c.match); status != c.status {
			t.Fatalf("%+v: %d %s", c, status, body)
		}
	}
	for i, r := range o.replicas {
		start := time.Now()
		storetest.Eventually(t, patience, "it is in force", func() bool { return !r.workspaces.Queues("acme") })
		t.Logf("replica %d follows after %v", i, time.Since(start).Round(time.Millisecond))
		for _, path := range []string{path, "/projects/site/v1/chat/completions", "/v1/chat/completions", "/direct/agent/v1/chat/completions"} {
			if status, body, h := o.send(i, "POST", path, "secret-a", quick); status != 429 || !strings.Contains(body, `"capacity_exceeded"`) || h.Get("Retry-After") == "" {
				t.Errorf("replica %d, %s: %d %s", i, path, status, body)
			}
		}
	}
	if n := o.waiting(0) + o.waiting(1) + o.waiting(2); n != 3 {
		t.Errorf("%d of 3 still wait", n)
	}
	for range 4 {
		o.release <- struct{}{}
		if status := <-results; status != 200 {
			t.Errorf("one that waited: %d", status)
		}
	}
	// On again by an operator, a request waits again.
	if status, body, _ := o.send(0, "PATCH", "/api/workspaces/acme", "admin", `{"inference_queueing_enabled": true}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	storetest.Eventually(t, patience, "on again", func() bool { return o.replicas[1].workspaces.Queues("acme") })
	go func() {
		status, _, _ := o.send(0, "POST", path, "secret-b", held)
		results <- status
	}()
	storetest.Eventually(t, patience, "the slot is taken", func() bool { return o.replicas[0].gateway.Agents().States()[0].Held == 1 })
	go func() {
		status, _, _ := o.send(1, "POST", path, "secret-b", quick)
		results <- status
	}()
	storetest.Eventually(t, patience, "one waits", func() bool { return o.waiting(1) == 1 })
	if status, body, _ := o.send(1, "POST", "/direct/agent/v1/chat/completions", "secret-b", quick); status != 429 {
		t.Errorf("a direct request waits: %d %s", status, body)
	}
	o.release <- struct{}{}
	for range 2 {
		if status := <-results; status != 200 {
			t.Errorf("on again: %d", status)
		}
	}
}

// Of a workspace with zero_data_retention nothing of any body is logged, not even
// for debugging, or left in Redis, and files are refused.
func TestZeroDataRetention(t *testing.T) {
	o := openOffices(t)
	form := func(text string) string {
		return "--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" +
			text + "\"\r\n\r\n{\"" + text + "\": 1}\r\n--x--\r\n"
	}
	const forms = "multipart/form-data; boundary=x"
	if status, body, _ := o.send(0, "POST", "/v1/files", "secret-b", form("CONTROL"), "Content-Type", forms); status != 200 || !o.keeps("CONTROL") {
		t.Fatalf("before, files are kept: %d %s", status, body)
	}
	if status, body, _ := o.send(0, "PATCH", "/api/workspaces/acme", "secret-a", `{"zero_data_retention": true}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	storetest.Eventually(t, patience, "all know", func() bool {
		for _, r := range o.replicas {
			if r.workspaces.MayKeep("acme") == nil {
				return false
			}
		}
		return true
	})
	const marker = "MARKER"
	for n, c := range []struct {
		path, body string
		status     int
	}{
		{"/v1/chat/completions", `{"model": "m", "messages": [{"role": "user", "content": "MARKER"}], "user": "MARKER"}`, 200},
		{"/workspaces/acme/v1/chat/completions", `{"model": "m", "messages": "refuse MARKER"}`, 400},
		{"/projects/site/v1/chat/completions", `{"model": "m", "messages": "break MARKER"}`, 502},
		{"/v1/embeddings", `{"model": "n", "input": "MARKER"}`, 502},
		{"/v1/chat/completions", `{"model": "MARKER", "messages": []}`, 404},
		{"/v1/chat/completions", `{"model": MARKER`, 400},
		{"/v1/chat/completions", `{"model": ["MARKER"]}`, 400},
		{"/v1/chat/completions", `{"Model": "MARKER"}`, 400},
		{"/direct/agent/v1/responses", `{"model": "m", "input": "MARKER"}`, 200},
	} {
		if status, body, _ := o.send(n%3, "POST", c.path, "secret-b", c.body); status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.path, c.body, status, body, c.status)
		}
	}
	for i, prefix := range []string{"", "/workspaces/acme", "/projects/site"} {
		for path, body := range map[string]string{"/v1/files": form(marker), "/v1/batches": `{"input_file_id": "f", "endpoint": "/v1/chat/completions", "completion_window": "24h"}`} {
			kind := "application/json"
			if path == "/v1/files" {
				kind = forms
			}
			if status, body, _ := o.send(i, "POST", prefix+path, "secret-b", body, "Content-Type", kind); status != 403 || !strings.Contains(body, `"zero_data_retention"`) {
				t.Errorf("%s: %d %s", prefix+path, status, body)
			}
		}
	}
	if log := o.log.String(); strings.Contains(log, marker) || !strings.Contains(log, "upstream call failed") {
		t.Errorf("the log tells too much, or too little:\n%s", log)
	}
	if o.keeps(marker) {
		t.Error("Redis keeps something")
	}
}

// keeps reports whether Redis has a text somewhere.
func (o *offices) keeps(text string) bool {
	for _, key := range o.redis.Do("KEYS", "*").([]any) {
		name := key.(string)
		if dump, err := o.redis.Try("DUMP", name); err == nil && strings.Contains(name+fmt.Sprint(dump), text) {
			return true
		}
	}
	return false
}
