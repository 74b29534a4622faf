// Package sdktest lets the official OpenAI SDKs, unmodified, talk to a fleet
// through its load balancer. What they make of an answer is the contract that
// counts for applications: an error class, a wait before a retry, the end of a
// stream. The package is a module of its own, so that the SDK never becomes a
// dependency of Headway. `make sdk-test` starts the fleet and runs it, and the
// same tests in Node (sdk.test.mjs).
package sdktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// patience bounds one test; the longest wait inside is the Retry-After of 3 s.
const patience = 30 * time.Second

// wire sees the raw answers that the SDK gets.
type wire struct {
	mu       sync.Mutex
	statuses []int
	bodies   []*bytes.Buffer
}

func (w *wire) watch(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(req)
	if err != nil {
		return res, err
	}
	body := new(bytes.Buffer)
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(res.Body, body), res.Body}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses = append(w.statuses, res.StatusCode)
	w.bodies = append(w.bodies, body)
	return res, nil
}

// client is an SDK client for the fleet, with the SDK's defaults but for opts.
func client(t *testing.T, key string, opts ...option.RequestOption) (*openai.Client, *wire, context.Context) {
	t.Helper()
	url := os.Getenv("HEADWAY_URL")
	if url == "" {
		t.Fatal("HEADWAY_URL is not set: run make sdk-test, which starts a fleet")
	}
	w := new(wire)
	c := openai.NewClient(append([]option.RequestOption{
		option.WithBaseURL(url + "/v1"), option.WithAPIKey(key), option.WithMiddleware(w.watch),
	}, opts...)...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return &c, w, ctx
}

func hello() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:     "sim",
		Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
		MaxTokens: openai.Int(16),
	}
}

func TestCompletion(t *testing.T) {
	c, _, ctx := client(t, "sk-local-small")
	got, err := c.Chat.Completions.New(ctx, hello())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Choices) == 0 || got.Choices[0].Message.Content == "" {
		t.Errorf("got no content: %s", got.RawJSON())
	}
	if got.Usage.TotalTokens <= 0 {
		t.Errorf("got no usage: %s", got.RawJSON())
	}
}

func TestStreamIsReadToItsEnd(t *testing.T) {
	c, w, ctx := client(t, "sk-local-small")
	stream := c.Chat.Completions.NewStreaming(ctx, hello())
	defer stream.Close()
	var text strings.Builder
	chunks := 0
	for stream.Next() {
		chunks++
		for _, choice := range stream.Current().Choices {
			text.WriteString(choice.Delta.Content)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if chunks < 2 || text.Len() == 0 {
		t.Errorf("got %d chunks with %q, want several with text", chunks, text.String())
	}
	if raw := w.bodies[0].String(); !strings.HasSuffix(strings.TrimSpace(raw), "data: [DONE]") {
		t.Errorf("the stream ends with %q, want data: [DONE]", raw[max(0, len(raw)-80):])
	}
}

func TestRefusalIsTheRateLimitError(t *testing.T) {
	c, _, ctx := client(t, "sk-local-sdk-go-1", option.WithMaxRetries(0))
	if _, err := c.Chat.Completions.New(ctx, hello()); err != nil {
		t.Fatalf("the first request: %v", err)
	}
	_, err := c.Chat.Completions.New(ctx, hello())
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("the second request: got %v, want the SDK's error with status 429", err)
	}
	if refused.Type != "rate_limit_error" || refused.Code != "rate_limited" {
		t.Errorf("got type %q and code %q, want rate_limit_error and rate_limited", refused.Type, refused.Code)
	}
	after, err := strconv.Atoi(refused.Response.Header.Get("Retry-After"))
	if err != nil || after < 1 || after > 4 {
		t.Errorf("Retry-After is %q, want 1 to 4 seconds", refused.Response.Header.Get("Retry-After"))
	}
}

func TestRefusalIsRetriedAndServed(t *testing.T) {
	c, w, ctx := client(t, "sk-local-sdk-go-2")
	if _, err := c.Chat.Completions.New(ctx, hello()); err != nil {
		t.Fatalf("the first request: %v", err)
	}
	start := time.Now()
	if _, err := c.Chat.Completions.New(ctx, hello()); err != nil {
		t.Fatalf("the second request: %v", err)
	}
	if got, want := w.statuses, []int{200, 429, 200}; !slices.Equal(got, want) {
		t.Errorf("the fleet answered %v, want %v: one refusal, one retry, served", got, want)
	}
	if waited := time.Since(start); waited < time.Second {
		t.Errorf("the retry came after %v, before its Retry-After", waited)
	}
}

func TestUnknownKeyIsTheAuthenticationError(t *testing.T) {
	c, _, ctx := client(t, "sk-nobody")
	_, err := c.Chat.Completions.New(ctx, hello())
	var refused *openai.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusUnauthorized {
		t.Fatalf("got %v, want the SDK's error with status 401", err)
	}
}
