package fleettest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// client keeps enough connections open that no test measures their set-up.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}

// answer is what came back for one request.
type answer struct {
	sent   time.Time
	took   time.Duration
	status int
	header http.Header
	body   string
	err    error
}

// refusal is the part of an error body that the tests look at.
type refusal struct {
	Error struct {
		Code    string
		Details struct {
			LimitType string `json:"limit_type"`
			Reason    string
		}
	}
}

// refusal decodes the error that the answer carries.
func (a answer) refusal() (r refusal) {
	json.Unmarshal([]byte(a.body), &r) // a body that is no error yields an empty one
	return r
}

// String shows an answer in a failure.
func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d after %v: %.200s", a.status, a.took.Round(time.Millisecond), a.body)
}

// ask sends one chat completion to a replica and reads the whole answer. The
// provider takes latency for it.
func ask(ctx context.Context, r *replica, latency time.Duration) answer {
	return send(ctx, r, latency, `{"model": "sim", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}`)
}

func send(ctx context.Context, r *replica, latency time.Duration, body string) (a answer) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(bench.HeaderLatency, latency.String())
	a.sent = time.Now()
	defer func() { a.took = time.Since(a.sent) }()
	res, err := client.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	a.status, a.header, a.body, a.err = res.StatusCode, res.Header, string(text), err
	return a
}

// startProvider starts the judge.
func startProvider(t *testing.T) *bench.Upstream {
	t.Helper()
	p, err := bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{Seed: 1, Tokens: bench.Constant(8)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
