package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/cost"
)

const explained = `
server: {admin_token: admin-secret}
keys:
  - {id: a, key: secret-a, user: ann, team: acme}
  - {id: free, key: secret-free, user: fred}
  - {id: late, key: secret-late, user: lara, batch: true}
upstreams:
  - {name: own, url: "http://upstream.test", models: [gpt-4o, small], slots: 4}
  - {name: rented, url: "http://upstream.test", models: [gpt-4o, large], throttle: {enabled: true, max_wait: 3s}}
  - {name: plain, url: "http://upstream.test", kind: http}
routes:
  - {path: /v1/*, upstreams: [own, rented]}
  - {path: /plain/*, upstream: plain}
rate_limiting:
  per_user: {requests: {limit: 2, per: 100000h}, tokens: {limit: 1000, per: 100000h}, max_in_flight_requests: 8, on_outage: fail_open}
  per_backend: {overrides: {rented: {tokens: {limit: 100, per: 1s}}}}
  bypass_keys: [{id: free, skip: [requests, tokens]}]
  fair_queuing: {enabled: true, weights: [{identity: ann, weight: 3}]}
`

// TestExplain asks a configuration alone.
func TestExplain(t *testing.T) {
	cfg, err := config.Parse([]byte(explained), nil)
	if err != nil {
		t.Fatal(err)
	}
	estimator := cost.New(true)
	t.Cleanup(estimator.Close)
	body := func(text string) json.RawMessage {
		return json.RawMessage(`{"model":"small","max_tokens":10,"n":2,"messages":[{"role":"user","content":"` + text + `"}]}`)
	}
	for _, c := range []struct {
		name    string
		q       Question
		verdict string
		says    []string // in the JSON of the answer
	}{
		{"counted", Question{KeyID: "a", Model: "gpt-4o", Body: body("hello world")}, "Would be admitted while",
			[]string{`"how":"counted"`, `"vocabulary":"o200k_base"`, `"output":20`, "10 for each of 2 choices", `"weight":3`, `"tenant":"ann"`, `"refused":"queued","on_outage":"fail_open"`,
				`"slots":4`, `"throttle":"waits up to 3s`, `"refused":"next upstream"`}},
		{"the body's model, by bytes", Question{KeyID: "a", Body: body("12345678")}, "Would be admitted while",
			[]string{`"model":"small"`, `"how":"assumed"`, "4 bytes a token", `"name":"rented","serves":false`}},
		{"tokens given", Question{KeyID: "a", Model: "large", Tokens: 100, MaxTokens: 50}, "Would be admitted while",
			[]string{`"how":"given"`, `"total":150`, "at most 50, as the request says", `"never":"exceeds_burst"`}},
		{"default completion", Question{KeyID: "a", Model: "large"}, "Would be admitted while", []string{`"output":512`, "default_completion_tokens"}},
		{"no completion", Question{KeyID: "a", Model: "large", Path: "/v1/embeddings", Tokens: 7}, "Would be admitted while", []string{`"output":0`, "none on this path"}},
		{"too large for ever", Question{KeyID: "a", Model: "large", Tokens: 1000}, "429 exceeds_burst by the user limit on tokens, for ever", nil},
		{"exempt", Question{KeyID: "free", Model: "large", Tokens: 1000}, "Would be admitted while", []string{`"exempt":["requests","tokens"]`, `"class":"inflight"`}},
		{"raw key", Question{RawKey: "secret-a", Model: "large", Batch: true}, "Would be admitted while", []string{`"key":"a"`, "batch: in turn by cost, while more than 20 %"}},
		{"a key for batch work", Question{KeyID: "late", Model: "large"}, "Would be admitted while", []string{"batch: in turn by cost", `"class":"tokens","limit":1000,"per_s":360000000,"burst":1000,"cost":512,"refused":"queued"`}},
		{"unknown model", Question{KeyID: "a", Model: "other"}, `404 model_not_found: no upstream of the route serves "other".`, nil},
		{"opaque", Question{KeyID: "a", Path: "/plain/x", Tokens: 5}, "Would be admitted while", []string{`"total":0`, "of kind http"}},
	} {
		e, err := Explain(cfg, c.q, estimator)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.Verdict, c.verdict) {
			t.Errorf("%s: %s", c.name, e.Verdict)
		}
		for _, say := range c.says {
			if !strings.Contains(string(text), say) {
				t.Errorf("%s: lacks %s: %s", c.name, say, text)
			}
		}
		if strings.Contains(string(text), "secret-") {
			t.Errorf("%s: tells a secret: %s", c.name, text)
		}
	}
	for _, q := range []Question{
		{}, {KeyID: "secret-a"}, {RawKey: "a"}, {RawKey: "secret-guess"}, {KeyID: "a", Path: "/elsewhere"}, {KeyID: "a", Path: "v1"},
		{KeyID: "a", Path: "/v1/../plain"}, {KeyID: "a", Body: json.RawMessage(`[]`)}, {KeyID: "a", Tokens: -1},
	} {
		if e, err := Explain(cfg, q, nil); err == nil || strings.Contains(err.Error(), "secret-") {
			t.Errorf("%+v: %+v, %v", q, e, err)
		}
	}
}

// TestExplainLive asks a gateway that has served something.
func TestExplainLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, _, _ := strings.Cut(explained[strings.Index(explained, "rate_limiting:"):], "  per_backend")
		r := newRig(t, "server: {admin_token: admin-secret}\n"+limits, ok)
		ask := func(token, body string) (int, Explanation, string) {
			req := httptest.NewRequest(http.MethodPost, "/api/explain", strings.NewReader(body))
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			r.Admin().ServeHTTP(w, req)
			var e Explanation
			if w.Code == http.StatusOK {
				if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil {
					t.Fatal(err)
				}
			}
			return w.Code, e, w.Body.String()
		}
		question := `{"key":"a","model":"m","tokens":%d,"max_tokens":1}`
		r.must(200, "/v1/completions", `{"model":"m","max_tokens":1}`, as("secret-a")) // 30 of 1000 tokens
		status, e, text := ask("admin-secret", fmt.Sprintf(question, 10))
		if status != 200 || !e.Live || !strings.HasPrefix(e.Verdict, "Would be admitted now") || *e.Limits[0].Left != 1 || *e.Limits[1].Left != 970 {
			t.Errorf("%d: %s", status, text)
		}
		if _, e, text := ask("admin-secret", fmt.Sprintf(question, 980)); !strings.HasPrefix(e.Verdict, "429 now: the user limit on tokens") || e.Limits[1].MissingS == 0 {
			t.Errorf("too much for now: %s", text)
		}
		r.must(200, "/v1/completions", `{"model":"m","max_tokens":1}`, as("secret-a"))
		if _, e, text := ask("admin-secret", fmt.Sprintf(question, 10)); !strings.Contains(text, `"left":0`) || e.Limits[0].Refused != "429" || !strings.HasPrefix(e.Verdict, "429 now: the user limit on requests") {
			t.Errorf("used up: %s", text)
		}
		for token, status := range map[string]int{"": 401, "wrong": 401, "secret-a": 403} {
			if got, _, text := ask(token, fmt.Sprintf(question, 10)); got != status {
				t.Errorf("token %q: %d, want %d: %s", token, got, status, text)
			}
		}
		for _, body := range []string{"", "[]", `{"key":"nobody"}`, `{"kye":"a"}`, `{"key":"a"} {}`} {
			if got, _, text := ask("admin-secret", body); got != 422 {
				t.Errorf("%q: %d: %s", body, got, text)
			}
		}
	})
}
