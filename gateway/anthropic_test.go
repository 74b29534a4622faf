package gateway

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// message is a request of Anthropic's API: 4 prompt tokens (16 bytes of text), 9
// of completion.
const message = `{"model":"m","system":"Be brief","messages":[{"role":"user","content":[{"type":"text","text":"test"}]}],"max_tokens":9}`

// TestAnthropicAnswers compares Headway's own answers to callers of that API with
// testdata/answers, byte for byte.
func TestAnthropicAnswers(t *testing.T) {
	for _, c := range []answerCase{
		{name: "key_missing", headers: []header{{"Authorization", ""}}},
		{name: "key_unknown", headers: []header{{"Authorization", ""}, {"X-Api-Key", "wrong"}}},
		{name: "refused", config: limit("per_user", "requests: {limit: 1, per: 1s}"), before: spend},
		{name: "json_malformed", body: `{"model":`},
		{name: "body_too_large", config: "server: {max_body: 16B}"},
		{name: "limiter_unavailable", config: limit("per_user", "requests: {limit: 10, per: 1s}"), before: storeDown},
		{name: "upstream_unreachable", before: func(_ *testing.T, r *rig) { r.upstream.Close() }},
		{name: "upstream_no_headers", upstream: slow(time.Hour)},
		{name: "url_unknown", path: "/v2/models", headers: []header{{"Anthropic-Version", "2023-06-01"}}},
	} {
		if c.path == "" {
			c.path = "/v1/messages"
		}
		if c.body == "" {
			c.body = message
		}
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { golden(t, "answers/anthropic_"+c.name, c.run(t)) })
		})
	}
}

// TestAnthropicKinds names every status that Headway answers with.
func TestAnthropicKinds(t *testing.T) {
	for status, want := range map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		405: "invalid_request_error", 408: "invalid_request_error", 413: "request_too_large", 415: "invalid_request_error",
		429: "rate_limit_error", 500: "api_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error",
	} {
		if got := anthropicKind(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
	for path, want := range map[string]bool{
		"/v1/messages": true, "/v1/messages/count_tokens": true, "/workspaces/a/v1/messages": true,
		"/v1/messagesx": false, "/v1/threads/t/messages": false, "/v1/chat/completions": false,
	} {
		r, _ := http.NewRequest(http.MethodPost, "http://gateway.test"+path, nil)
		if got := speaksAnthropic(r); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// TestAnthropicStreamBreaks: an SDK takes an error for one by the event's name.
func TestAnthropicStreamBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		r := newRig(t, "", frames(cut, begun))
		got, err := r.stream("/v1/messages", message, as("secret-a"))
		want := begun + "\n\n\n\nevent: error\ndata: " +
			`{"type":"error","error":{"message":"The upstream's answer ended before it was complete.","type":"api_error","code":"upstream_broke","param":null},"request_id":"test"}` + "\n\n"
		if got != want || err == nil {
			t.Errorf("got %q, %v\nwant %q, and no proper end", got, err, want)
		}
	})
}

// TestAnthropicUsage settles what the frames of a stream tell: the prompt at its
// beginning, what of it was stored, and the completion at its end.
func TestAnthropicUsage(t *testing.T) {
	start := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":30," +
		"\"cache_creation_input_tokens\":7,\"cache_read_input_tokens\":1000,\"output_tokens\":1}}}"
	last := "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":20}}"
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "rate_limiting: {per_user: {tokens: {limit: 1000, per: 100000h}}}", frames(nil, start, last))
		r.must(http.StatusOK, "/v1/messages", message, header{"X-Api-Key", "secret-a"})
		if spent := 1000 - r.left(limiter.User, limiter.Tokens, "ann", 1000); spent != 57 {
			t.Errorf("%d tokens were spent, want 57", spent)
		}
	})
}

// TestAnthropicCredential: that provider takes keys in a header of its own.
func TestAnthropicCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen http.Header
		r := newRig(t, "", func(w http.ResponseWriter, req *http.Request) { seen = req.Header; ok(w, req) })
		r.tables.Load().routes[1].candidates[0].base.Host = anthropicHost
		r.must(http.StatusOK, "/v1/messages", message, header{"X-Api-Key", "secret-a"}, header{"Anthropic-Version", "2023-06-01"})
		if seen.Get("X-Api-Key") != "upstream-secret" || seen.Get("Authorization") != "" || seen.Get("Anthropic-Version") == "" {
			t.Errorf("the upstream saw %v", seen)
		}
	})
}
