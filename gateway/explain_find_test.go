package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/gateway/config"
)

// crowd has one of everything that a path may lead to.
const crowd = `
batch: {enabled: true}
keys:
  - {id: a, key: secret-a, user: ann, workspaces: [{id: acme, role: owner}, {id: shy, role: member}]}
  - {id: b, key: secret-b, user: bob}
workspaces: [{id: acme}, {id: shy, inference_queueing_enabled: false}]
projects: [{id: p1, workspace: acme}]
upstreams:
  - {name: one, url: "http://one.test", slots: 1, queue_depth: 3, models: [m, n]}
  - {name: two, url: "http://two.test", slots: 1, queue_depth: 3, models: [m]}
  - {name: cloud, url: "http://cloud.test", models: [n, big]}
routes:
  - {path: /v1/models, upstreams: [cloud], methods: [GET]}
  - {path: /v1/status, upstreams: [cloud], methods: [GET]}
  - {path: /v1/*, upstreams: [one, two]}
  - {path: /v1/completions, upstreams: [one, two, cloud]}
turns:
  - name: answer
    path: /v1/turns/answer
    steps:
      - {name: sort, kind: classify, model: m, choices: [{answer: code, step: coder}], default: coder}
      - {name: coder, model: big, max_tokens: 100}
queueing: {queue_timeout: 60s}
rate_limiting:
  per_client: {requests: {limit: 5, per: 1m}, overrides: {10.0.0.9: {requests: {limit: 7, per: 1m}}}}
  per_model: {requests: {limit: 9, per: 1m}}
  fair_queuing: {weights: [{identity: ann, weight: 3}]}
  whitelist: [192.0.2.0/24]
`

// TestExplainPlaces: a path is explained as what the gateway does with it.
func TestExplainPlaces(t *testing.T) {
	cfg, err := config.Parse([]byte(crowd), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		q    Question
		says []string // in the JSON of the answer
		not  string
	}{
		{"workspace", Question{KeyID: "a", Model: "m", Path: "/workspaces/acme/v1/chat/completions"},
			[]string{`"place":"workspace acme"`, `"waits":true,"why":"workspace acme has inference_queueing_enabled: true"`, `"names":["one","two"]`}, ""},
		{"one that sheds", Question{KeyID: "a", Model: "m", Path: "/workspaces/shy/v1/chat/completions"}, []string{`"waits":false,"why":"workspace shy has inf`}, ""},
		{"project", Question{KeyID: "a", Model: "m", Path: "/projects/p1/v1/embeddings"}, []string{`"place":"project p1 of workspace acme"`, `"output":0`}, ""},
		{"direct", Question{KeyID: "b", Model: "m", Path: "/direct/two/v1/chat/completions"},
			[]string{`"place":"directly to agent two"`, `"names":["two"],"waits":false,"why":"a direct path never waits"`}, `"name":"one"`},
		{"last resort", Question{KeyID: "a", Model: "n", Path: "/v1/completions"}, []string{`"name":"cloud"`}, `"agents"`},
		{"turn", Question{KeyID: "a", Path: "/v1/turns/answer/chat/completions", Tokens: 10, MaxTokens: 5},
			[]string{`"turn":"answer"`, `"name":"sort","kind":"classify","model":"m","tokens":26,"then":"\"code\": coder, else: coder"`,
				`"total":136`, `"name":"coder","kind":"dispatch","model":"big","tokens":110,"then":"answers the caller","limits":[{"dimension":"model"`, `"why":"steps of turns always wait"`}, `"name":"nobody"`},
		{"files", Question{KeyID: "a", Path: "/v1/files", Model: "m"}, []string{`"verdict":"The gateway answers by itself: the Batch API`, `"dimension":"client"`}, `"dimension":"model"`},
		{"batches of a project", Question{KeyID: "a", Path: "/projects/p1/v1/batches/b1", Method: "get"}, []string{`"own":"the Batch API`, `"method":"GET"`}, ""},
		{"models", Question{KeyID: "a", Path: "/v1/models", Method: "GET"}, []string{`"own":"the list of models`}, ""},
		{"method", Question{KeyID: "a", Model: "big", Path: "/v1/status", Method: "GET"}, []string{`"upstreams":[{"name":"cloud"`}, ""},
		{"any client", Question{KeyID: "a", Model: "m"}, []string{`{"dimension":"client","class":"requests","limit":5,"per_s":60`}, `"client":"`},
		{"this client", Question{KeyID: "a", Model: "m", Client: "10.0.0.9"}, []string{`"client":"10.0.0.9"`, `{"dimension":"client","class":"requests","limit":7`}, ""},
		{"exempt client", Question{KeyID: "a", Model: "m", Client: "192.0.2.7"}, []string{`"exempt":["requests"`}, `"dimension":"client"`},
	} {
		e, err := Explain(cfg, c.q, nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		for _, say := range c.says {
			if !strings.Contains(string(text), say) {
				t.Errorf("%s: lacks %s: %s", c.name, say, text)
			}
		}
		if c.not != "" && strings.Contains(string(text), c.not) {
			t.Errorf("%s: has %s: %s", c.name, c.not, text)
		}
	}
	for want, q := range map[string]Question{
		"404 workspace_not_found":                        {KeyID: "b", Path: "/workspaces/acme/v1/chat/completions"},
		"404 project_not_found":                          {KeyID: "a", Path: "/projects/none/v1/chat/completions"},
		"404 agent_not_found":                            {KeyID: "a", Path: "/direct/cloud/v1/chat/completions"},
		"agent one is none of the upstreams":             {KeyID: "a", Path: "/direct/one/v1/status", Method: "GET"},
		"405 method_not_allowed":                         {KeyID: "a", Path: "/v1/turns/answer", Method: "GET"},
		"-1 tokens are fewer than none":                  {KeyID: "a", Tokens: -1},
		"no route takes GET /elsewhere":                  {KeyID: "a", Path: "/elsewhere", Method: "GET"},
		`the client "localhost" is no IP address`:        {KeyID: "a", Client: "localhost"},
		`no key with the id "nobody"; headway config sh`: {KeyID: "nobody"},
		"it is a key itself":                             {KeyID: "secret-a"},
		"give its id (--key":                             {},
	} {
		_, err := Explain(cfg, q, nil)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-") {
			t.Errorf("%+v: %v, want %q", q, err, want)
		}
	}
}

// TestExplainAgents: what is said of a wait for a slot is what requests meet.
func TestExplainAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOf(t, crowd, ok)
		verdict := func(path, model string) Explanation {
			t.Helper()
			e, err := r.explain(t.Context(), Question{KeyID: "a", Path: path, Model: model})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		is := func(path, model, want string) {
			t.Helper()
			if e := verdict(path, model); !strings.Contains(e.Verdict, want) {
				t.Errorf("%s: %s, want %s", path, e.Verdict, want)
			}
		}
		free := r.hold("one")
		is("/v1/chat/completions", "m", admitted) // two is free
		is("/direct/one/v1/chat/completions", "m", "429 capacity_exceeded now: no slot is free (1 of 1 held, 0 waiting), and a direct path never waits.")
		free2 := r.hold("two")
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 6)
		wait := func() {
			_, err := r.agents.Acquire(ctx, agents.Want{Agents: []string{"one", "two"}, Tenant: "y", Weight: 1, Queue: true})
			over <- err
		}
		for range 4 {
			go wait()
		}
		synctest.Wait()
		is("/v1/chat/completions", "m", "Would wait for a slot, for up to 1m: no slot is free (2 of 2 held, 4 waiting); tenant ann has weight 3.")
		is("/workspaces/acme/v1/chat/completions", "m", "Would wait for a slot")
		is("/workspaces/shy/v1/chat/completions", "m", "Would wait for a slot") // its document was never read
		is("/v1/turns/answer", "", "Would wait for a slot")
		is("/v1/completions", "n", admitted) // in the cloud
		if e := verdict("/v1/chat/completions", "m"); e.Queue.Agents == nil || e.Queue.Agents.Waiting != 4 || *e.Upstream[0].Healthy != true || e.Upstream[0].Held != 1 {
			t.Errorf("agents: %+v, upstreams %+v", e.Queue.Agents, e.Upstream)
		}
		for range 2 {
			go wait()
		}
		synctest.Wait()
		is("/v1/chat/completions", "m", "503 queue_full now: no slot is free (2 of 2 held, 6 waiting)")
		r.told("/v1/chat/completions", 503, "queue_full", 0)
		cancel()
		for range 6 {
			if err := <-over; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		free()
		free2()
		time.Sleep(time.Second) // the claims are withdrawn
		is("/v1/chat/completions", "m", admitted)
	})
}

// TestExplainQuestions: a mistaken question is told what is wrong with it.
func TestExplainQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOf(t, crowd, ok)
		for body, want := range map[string]string{
			`{"kye":"a"}`:                            `no field \"kye\"; its fields are key, raw_key, path, method, client, model`,
			`{"key":"a","tokens":"many"}`:            `the field \"tokens\" of a question is a string, not a int64`,
			`{"key":"a","path":"/v1/x","method":""}`: `"verdict":`,
			`[`:                                      "is not the JSON object of a question",
		} {
			req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/api/explain", strings.NewReader(body))
			w := httptest.NewRecorder()
			r.Admin().ServeHTTP(w, req)
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
			}
		}
	})
}

// TestAdminRoot: whoever opens the admin listener is led to the console, while it is on.
func TestAdminRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for more, want := range map[string]int{"": http.StatusFound, "server: {console: false}\n": http.StatusNotFound} {
			r := newRig(t, more, ok)
			w := httptest.NewRecorder()
			r.Admin().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil))
			if at := w.Header().Get("Location"); w.Code != want || want == http.StatusFound && at != "/console/" {
				t.Errorf("%q: %d to %q, want %d", more, w.Code, at, want)
			}
		}
	})
}

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", time.Hour: "1h", 0: "0s", 10 * time.Second: "10s", 90 * time.Minute: "1h30m", 61 * time.Second: "1m1s", 10 * time.Minute: "10m", time.Hour + time.Second: "1h0m1s",
	} {
		if got := Brief(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
