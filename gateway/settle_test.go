package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// frames is an upstream that streams frames and then ends, or does what then
// does.
func frames(then http.HandlerFunc, list ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		_ = flush()
		for _, f := range list {
			fmt.Fprint(w, f, "\n\n")
			_ = flush()
		}
		if then != nil {
			then(w, r)
		}
	}
}

// Frames as providers send them.
const (
	word      = `data: {"choices":[{"delta":{"content":"word"}}],"usage":null}`
	used      = `data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}`
	done      = `data: [DONE]`
	failure1  = `data: {"error":{"message":"overloaded","type":"server_error"}}`
	failure2  = "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"x\"}"
	created   = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null,\"usage\":null}}"
	failed    = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\"},\"usage\":null}}"
	delta     = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"word\"}"
	completed = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":2,\"total_tokens\":3}}}"
	begun     = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}"
	error529  = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}"
)

// TestStreamsAreSettled follows a budget of 1000 tokens, the same in a user's and
// in an upstream's bucket, and one of 100 requests, through one streamed answer.
func TestStreamsAreSettled(t *testing.T) {
	silence := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprint(w, text)
		}
	}
	const estimate, none, told = 10, 0, 3
	for _, c := range []struct {
		name     string
		body     string // completion unless set
		upstream http.HandlerFunc
		leaves   bool // the client, after the first frame
		spent    int64
	}{
		{"usage in a frame without choices", "", frames(nil, word, word, used, done), false, told},
		{"no usage frame", "", frames(nil, word, word, done), false, estimate},
		{"null usage alone", "", frames(nil, word), false, estimate},
		{"responses", "", frames(nil, created, delta, completed), false, told},
		{"messages", "", frames(nil, begun, `data: {"usage":{"output_tokens":4}}`), false, 5},
		{"n completions: prompt once", `{"model":"m","prompt":"test","max_tokens":9,"n":4}`, frames(nil, word, done), false, 37},
		{"n completions, told", `{"model":"m","prompt":"test","max_tokens":9,"n":4}`, frames(nil, word, used), false, told},
		{"far above the estimate", "", frames(nil, `data: {"usage":{"total_tokens":1500}}`), false, 1500},
		{"the client leaves before the last frame", "", frames(silence, word), true, estimate},
		{"the client leaves after small news", "", frames(silence, used), true, estimate},
		{"the client leaves after great news", "", frames(silence, `data: {"usage":{"total_tokens":70}}`), true, 70},
		{"cut after a word", "", frames(cut, word), false, estimate},
		{"cut before a word", "", frames(cut), false, none},
		{"silent after a word", "", frames(silence, word), false, estimate},
		{"silent before a word", "", frames(silence), false, none},
		{"400", "", status(400, `{"error":{}}`), false, none},
		{"429", "", status(429, `{"error":{}}`), false, none},
		{"503", "", status(503, "busy"), false, none},
		{"no headers in time", "", slow(time.Hour), false, none},
		{"200, then an error at once", "", frames(nil, failure1), false, none},
		{"200, then an event called error", "", frames(nil, failure2), false, none},
		{"200, then a response that failed", "", frames(nil, created, failed), false, none},
		{"200, error after a word", "", frames(nil, word, failure1, done), false, estimate},
		{"200, event called error after a word", "", frames(nil, delta, failure2), false, estimate},
		{"200, failed after a word", "", frames(nil, created, delta, failed), false, estimate},
		{"200, begun and then overloaded", "", frames(nil, begun, error529), false, estimate},
		{"200, an error that tells more than the estimate", "", frames(nil, word, `data: {"usage":{"total_tokens":70}}`, failure1), false, 70},
		{"200, an error for an object", "", status(200, `{"error":{"message":"x"}}`), false, none},
		{"200, no error for an object", "", status(200, `{"error":null,"choices":[{"error":{}}]}`), false, estimate},
		{"200, an object that fails with usage", "", status(200, `{"error":{},"usage":{"total_tokens":70}}`), false, 70},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, `rate_limiting:
  per_user: {requests: {limit: 100, per: 100000h}, tokens: {limit: 1000, per: 100000h}}
  per_backend: {tokens: {limit: 1000, per: 100000h}}`, c.upstream)
				if c.body == "" {
					c.body = completion
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if resp, err := r.client.Do(r.request(ctx, "/v1/completions", c.body, as("secret-a"))); err == nil {
					in := bufio.NewReader(resp.Body)
					if c.leaves {
						_, _ = in.ReadString('\n')
						cancel()
					}
					_, _ = io.Copy(io.Discard, in)
					resp.Body.Close()
				}
				synctest.Wait()
				if n := r.left(limiter.User, limiter.Tokens, "ann", 1000); n != 1000-c.spent {
					t.Errorf("%d of the user's tokens were spent, want %d", 1000-n, c.spent)
				}
				if n := r.left(limiter.Backend, limiter.Tokens, "llm", 1000); n != 1000-c.spent {
					t.Errorf("%d of the upstream's tokens were spent, want %d", 1000-n, c.spent)
				}
				if n := r.left(limiter.User, limiter.Requests, "ann", 100); n != 99 {
					t.Errorf("%d requests are left of 100", n)
				}
			})
		})
	}
}

// TestDebtDelaysTheNext: what was used beyond the estimate is paid back before
// anything else starts, to the second.
func TestDebtDelaysTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limit("per_user", "tokens: {limit: 100, per: 100s}"), frames(nil, word, `data: {"usage":{"total_tokens":160}}`))
		resp, _ := r.do("/v1/completions", completion, as("secret-a"))
		start := time.Now()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.StatusCode)
		}
		// 100 - 160 = -60, and the next needs 10.
		resp, text := r.must(http.StatusTooManyRequests, "/v1/completions", completion, as("secret-a"))
		if secs, _ := strconv.Atoi(resp.Header.Get("Retry-After")); secs != 70 || !strings.Contains(text, `"limit_type":"tokens"`) {
			t.Errorf("told to come back after %d s: %s", secs, text)
		}
		// A request that costs nothing waits until the debt is paid.
		free := `{"model":"m","max_tokens":0}`
		resp, _ = r.must(http.StatusTooManyRequests, "/v1/completions", free, as("secret-a"))
		if secs := resp.Header.Get("Retry-After"); secs != "60" {
			t.Errorf("one that costs nothing comes back after %s s", secs)
		}
		time.Sleep(time.Until(start.Add(70*time.Second - time.Millisecond)))
		r.must(http.StatusTooManyRequests, "/v1/completions", completion, as("secret-a"))
		time.Sleep(time.Millisecond)
		r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
	})
}

// TestErrorFramesInPieces cuts streams with errors at every place.
func TestErrorFramesInPieces(t *testing.T) {
	for _, c := range []struct {
		frames         []string
		failed, served bool
	}{
		{[]string{failure1}, true, false},
		{[]string{failure2}, true, false},
		{[]string{created, failed}, true, false},
		{[]string{": comment", "event: ping\ndata: {}", error529}, true, false},
		{[]string{word, failure1, word}, true, true},
		{[]string{created, delta, completed}, false, true},
		{[]string{created}, false, false},
		{[]string{`data: {"choices":[{"error":{}}]}`, `data: {"x":{"error":{}}}`, `data: "error"`}, false, true},
		{[]string{"events: error\ndata: 1", "event: errors\ndata: 1"}, false, true},
	} {
		text := strings.Join(c.frames, "\n\n") + "\n\n"
		for _, eol := range []string{"\n", "\r\n", "\r"} {
			stream := strings.ReplaceAll(text, "\n", eol)
			for cut := range len(stream) {
				m := &meter{frames: &frameScanner{}}
				m.observe([]byte(stream[:cut]))
				m.observe([]byte(stream[cut:]))
				if m.failed() != c.failed || m.served() != c.served {
					t.Fatalf("%q cut at %d: failed %v, served %v", stream, cut, m.failed(), m.served())
				}
			}
		}
	}
}
