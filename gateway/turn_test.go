package gateway

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// turnRig is two agents of one slot each, an upstream without slots, and turns over
// them. The queue is as patient as 12 s.
const turnRig = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams:
  - {name: sorter, url: "http://sorter.test", slots: 1, models: [small]}
  - {name: writer, url: "http://writer.test", slots: 1, models: [big]}
  - {name: spare, url: "http://spare.test", models: [spare]}
routes: [{path: /v1/chat/*, upstreams: [sorter, writer]}]
queueing: {queue_timeout: 12s}
rate_limiting:
  per_user: {requests: {limit: 100, per: 100000h}, tokens: {limit: 100000, per: 100000h}, max_in_flight_requests: 50}
  per_model: {requests: {limit: 100, per: 100000h}}
turns:
  - name: answer
    path: /v1/turns/answer
    steps:
      - {name: sort, kind: classify, model: small, prompt: "Code or other? {{question}}", choices: [{answer: code, step: coder}, {answer: other, step: talk}]}
      - {name: coder, model: big, system: "You write code.", fallback: talk}
      - {name: talk, model: spare}
  - name: look
    path: /v1/turns/look
    max_rounds: 2
    steps: [{name: reply, model: big, tools: [search, clock]}]
  - name: polish
    path: /v1/turns/polish
    steps:
      - {name: draft, model: small, next: final, max_tokens: 7}
      - {name: final, model: big, prompt: "Polish: {{draft}} ({{question}})"}
tools:
  - {name: search, description: "Finds things.", url: "http://tools.test/search", timeout: 2s, max_bytes: 1KiB, credential: tool-secret, parameters: '{"type":"object","properties":{"q":{"type":"string"}}}'}
  - {name: clock, url: "http://tools.test/clock", timeout: 2s}
`

// call is a request that an upstream or a tool has got.
type call struct {
	host, path, auth string
	body             string
}

// stage answers for all hosts and remembers what they were asked.
type stage struct {
	mu    sync.Mutex
	calls []call
	hosts map[string]http.HandlerFunc
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.calls = append(s.calls, call{r.Host, r.URL.Path, r.Header.Get("Authorization"), string(body)})
	h := s.hosts[r.Host]
	s.mu.Unlock()
	h(w, r)
}

// asked lists the bodies that a host has got.
func (s *stage) asked(host string) (bodies []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.host == host {
			bodies = append(bodies, c.body)
		}
	}
	return bodies
}

// says answers each request with the next text, the last one for ever; one that
// begins with a brace is the message itself.
func says(texts ...string) http.HandlerFunc {
	var mu sync.Mutex
	next := 0
	return func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		text := texts[min(next, len(texts)-1)]
		next++
		mu.Unlock()
		if !strings.HasPrefix(text, "{") {
			text = `{"role":"assistant","content":` + fmt.Sprintf("%q", text) + `}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":%s}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}`, text)
	}
}

// calls is a message that calls a tool.
func calls(name, arguments string) string {
	return fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":%q,"arguments":%q}}]}`, name, arguments)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"message":"status %d"}}`, code)
	}
}

const ask1 = `{"model":"any","messages":[{"role":"user","content":"Sort a list"}],"max_tokens":50,"temperature":0.5}`

// streamed is ask1 as a stream.
var streamed = strings.Replace(ask1, "{", `{"stream":true,`, 1)

func newTurnRig(t *testing.T, hosts map[string]http.HandlerFunc) (*rig, *stage) {
	s := &stage{hosts: map[string]http.HandlerFunc{"sorter.test": says("code"), "writer.test": says("func"), "spare.test": says("hm")}}
	for host, h := range hosts {
		s.hosts[host] = h
	}
	return rigOf(t, turnRig, s.ServeHTTP), s
}

// TestTurn: a small model chooses who answers; the caller pays for both.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newTurnRig(t, map[string]http.HandlerFunc{"sorter.test": says("It is *Code*.", "Other", "Neither")})
		_, text := r.must(200, "/v1/turns/answer", ask1, as("secret-a"))
		if !strings.Contains(text, `"content":"func"`) {
			t.Errorf("answered %s", text)
		}
		_, text = r.must(200, "/v1/turns/answer/chat/completions", ask1, as("secret-a"))
		if !strings.Contains(text, `"content":"hm"`) {
			t.Errorf("answered %s", text)
		}
		if _, text = r.must(502, "/v1/turns/answer", ask1, as("secret-a")); !strings.Contains(text, "unclassified") {
			t.Errorf("answered %s", text)
		}
		want := map[string]string{
			"sorter.test": `{"max_tokens":16,"messages":[{"content":"Code or other? Sort a list","role":"user"}],"model":"small"}`,
			"writer.test": `{"max_tokens":50,"messages":[{"content":"You write code.","role":"system"},{"role":"user","content":"Sort a list"}],"model":"big","temperature":0.5}`,
			"spare.test":  `{"max_tokens":50,"messages":[{"role":"user","content":"Sort a list"}],"model":"spare","temperature":0.5}`,
		}
		for host, body := range want {
			if got := s.asked(host); len(got) == 0 || got[0] != body {
				t.Errorf("%s was asked %q, want %s", host, got, body)
			}
		}
		if c := s.calls[0]; c.path != "/v1/chat/completions" || c.auth != "" {
			t.Errorf("a step asked %+v", c)
		}
		// 30 tokens a step; one request a turn, and one of its model a step.
		if n := 100_000 - r.left(limiter.User, limiter.Tokens, "ann", 100_000); n != 150 {
			t.Errorf("%d tokens were spent, want 150", n)
		}
		if n := 100 - r.left(limiter.User, limiter.Requests, "ann", 100); n != 3 {
			t.Errorf("%d requests were counted, want 3", n)
		}
		for model, want := range map[string]int64{"small": 3, "big": 1, "spare": 1} {
			if n := 100 - r.left(limiter.Model, limiter.Requests, model, 100); n != want {
				t.Errorf("%d requests were counted for %s, want %d", n, model, want)
			}
		}
	})
}

// TestTurnPasses what one step said to the next.
func TestTurnPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newTurnRig(t, map[string]http.HandlerFunc{"sorter.test": says("so {{question}}")})
		r.must(200, "/v1/turns/polish", ask1, as("secret-a"))
		if got := s.asked("sorter.test")[0]; !strings.Contains(got, `"max_tokens":7`) || strings.Contains(got, "temperature") {
			t.Errorf("the draft was asked as %s", got)
		}
		if got := s.asked("writer.test")[0]; !strings.Contains(got, `"Polish: so {{question}} (Sort a list)"`) {
			t.Errorf("what a model says is filled in, or not passed on: %s", got)
		}
	})
}

// TestTurnFallback: who takes over, and when nobody does.
func TestTurnFallback(t *testing.T) {
	for _, c := range []struct {
		name   string
		writer http.HandlerFunc
		dead   string
		status int
		want   string
	}{
		{"an error", status(503), "", 200, "hm"},
		{"too many requests", status(429), "", 200, "hm"},
		{"unreachable", nil, "writer.test:80", 200, "hm"},
		{"cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", 200, "hm"},
		{"the caller's mistake", status(400), "", 400, "status 400"},
		{"nobody left", status(500), "spare.test:80", 502, "upstream_unreachable"},
	} {
		for _, body := range []string{ask1, streamed} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, _ := newTurnRig(t, map[string]http.HandlerFunc{"writer.test": c.writer})
					if c.dead != "" {
						r.dead.Store(c.dead, true)
					}
					if _, text := r.must(c.status, "/v1/turns/answer", body, as("secret-a")); !strings.Contains(text, c.want) {
						t.Errorf("answered %s", text)
					}
				})
			})
		}
	}
}

// TestTurnTools: what models call, what they are told, and where it ends.
func TestTurnTools(t *testing.T) {
	tool := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/clock":
			w.Header().Set("Location", "http://elsewhere.test/")
			w.WriteHeader(http.StatusFound)
		default:
			fmt.Fprint(w, `{"found":"it"}`)
		}
	}
	for _, c := range []struct {
		name   string
		model  []string
		tool   http.HandlerFunc
		status int
		told   string // to the model, in the last dispatch
	}{
		{"a result", []string{calls("search", `{"q":"x"}`), "done"}, tool, 200, `{\"found\":\"it\"}`},
		{"no arguments", []string{calls("search", ""), "done"}, tool, 200, `{\"found\":\"it\"}`},
		{"arguments that are none", []string{calls("search", `[1]`), "done"}, tool, 200, "error: the arguments are not a JSON object"},
		{"a tool that is none", []string{calls("rm", `{}`), "done"}, tool, 200, `error: there is no tool \"rm\"`},
		{"a redirect", []string{calls("clock", `{}`), "done"}, tool, 200, "error: the tool answered 302"},
		{"an error", []string{calls("search", `{}`), "done"}, status(500), 200, "error: the tool answered 500: "},
		{"too large", []string{calls("search", `{}`), "done"}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 1025)) }, 200, "larger than 1KiB"},
		{"too slow", []string{calls("search", `{}`), "done"}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 200, "did not answer in 2s"},
		{"again and again", []string{calls("search", `{}`)}, tool, 502, `"tool_choice":"none"`},
		{"in the last round", []string{calls("search", `{}`), calls("search", `{}`), "done"}, tool, 200, `"tool_choice":"none"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, s := newTurnRig(t, map[string]http.HandlerFunc{"writer.test": says(c.model...), "tools.test": c.tool})
				_, text := r.must(c.status, "/v1/turns/look", ask1, as("secret-a"))
				if c.status == 200 && !strings.Contains(text, `"content":"done"`) {
					t.Errorf("answered %s", text)
				}
				asked := s.asked("writer.test")
				if last := asked[len(asked)-1]; !strings.Contains(last, c.told) || !strings.Contains(last, `"tool_call_id":"c1"`) {
					t.Errorf("the model was told %s", last)
				}
				if len(asked) > 3 || !strings.Contains(asked[0], `"description":"Finds things."`) {
					t.Errorf("the model was asked %d times, first %s", len(asked), asked[0])
				}
				for _, c := range s.calls {
					if c.host == "tools.test" && c.path == "/search" && c.auth != "Bearer tool-secret" || c.host == "elsewhere.test" {
						t.Errorf("a tool was asked %+v", c)
					}
				}
				spent := 30 * int64(len(asked))
				if n := 100_000 - r.left(limiter.User, limiter.Tokens, "ann", 100_000); n != spent {
					t.Errorf("%d tokens were spent, want %d", n, spent)
				}
			})
		})
	}
}

// TestTurnMistakes are told before anything is spent.
func TestTurnMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newTurnRig(t, nil)
		for body, want := range map[string]string{
			`[]`: "invalid_json", `{"messages":[]}`: "invalid_messages", `{"messages":7}`: "invalid_messages", `{"Model":"x","messages":[{}]}`: "invalid_field",
			`{"messages":[{"role":"user","content":"x"}],"tools":[]}`: "tools_not_allowed",
		} {
			if _, text := r.must(400, "/v1/turns/look", body, as("secret-a")); !strings.Contains(text, want) {
				t.Errorf("%s: answered %s", body, text)
			}
		}
		r.must(405, "/v1/turns/look", "", as("secret-a"))
		r.must(401, "/v1/turns/look", ask1)
		r.must(404, "/direct/sorter/v1/turns/look", ask1, as("secret-a"))
		if len(s.calls) != 0 || r.left(limiter.User, limiter.Requests, "ann", 100) != 100 { // the last was given back
			t.Errorf("%d calls, %d requests left", len(s.calls), r.left(limiter.User, limiter.Requests, "ann", 100))
		}
	})
}

// chunks of a streamed answer.
func chunkOf(content string) string {
	return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"content":%q}}]}`, content)
}

// streamedCall are the chunks of a call, its arguments in pieces.
var streamedCall = []string{
	`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"search","arguments":""}}]}}]}`,
	`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"q\":"}}]}}]}`,
	`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}`,
	`data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, used, done,
}

// occupy takes the one slot of an agent for a while.
func occupy(r *rig, model string, d time.Duration) {
	r.t.Helper()
	go func() {
		body := fmt.Sprintf(`{"model":%q,"messages":[],"hold":%q}`, model, d)
		if resp, err := r.client.Do(r.request(r.t.Context(), "/v1/chat/completions", body, as("secret-a"))); err == nil {
			resp.Body.Close()
		}
	}()
	synctest.Wait()
}

// holding serves what occupy sends as long as it says, and anything else by then.
func holding(then http.HandlerFunc, s **stage) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		bodies := (*s).asked(r.Host)
		var b struct{ Hold string }
		_ = json.Unmarshal([]byte(bodies[len(bodies)-1]), &b)
		if d, err := time.ParseDuration(b.Hold); err == nil {
			select {
			case <-time.After(d):
			case <-r.Context().Done():
			}
			return
		}
		then(w, r)
	}
}

// alternate answers requests in turn.
func alternate(hs ...http.HandlerFunc) http.HandlerFunc {
	next := 0
	return func(w http.ResponseWriter, r *http.Request) {
		h := hs[min(next, len(hs)-1)]
		next++
		h(w, r)
	}
}

// part is what one flush brought, and when.
type part struct {
	at   time.Duration
	text string
}

// partsOf reads an answer flush by flush: in the bubble, what comes at once was
// written at once.
func (r *rig) partsOf(path, body string) (resp *http.Response, parts []part, err error) {
	r.t.Helper()
	start := time.Now()
	resp, err = r.client.Do(r.request(r.t.Context(), path, body, as("secret-a")))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for {
		if _, err = in.Peek(1); err != nil {
			if err == io.EOF {
				err = nil
			}
			synctest.Wait()
			return resp, parts, err
		}
		p := make([]byte, in.Buffered())
		_, _ = io.ReadFull(in, p)
		parts = append(parts, part{time.Since(start), string(p)})
	}
}

// TestTurnStreams: a model says something, calls a tool, waits for its agent again
// while comments keep the stream alive, and goes on.
func TestTurnStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		var r *rig
		tool := func(w http.ResponseWriter, _ *http.Request) {
			occupy(r, "big", 11*time.Second) // somebody else has the agent when the tool is done
			fmt.Fprint(w, "found")
		}
		writer := alternate(frames(nil, append([]string{chunkOf("Let me look. ")}, streamedCall...)...), frames(nil, chunkOf("It is x."), used, done))
		r, s = newTurnRig(t, nil)
		s.hosts["writer.test"], s.hosts["tools.test"] = holding(writer, &s), tool
		resp, parts, err := r.partsOf("/v1/turns/look", streamed)
		if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("answered %d, %v, %v", resp.StatusCode, resp.Header, err)
		}
		want := []part{
			{0, chunkOf("Let me look. ") + "\n\n"}, {5 * time.Second, ": waiting\n"}, {10 * time.Second, ": waiting\n"},
			{11 * time.Second, chunkOf("It is x.") + "\n\n"}, {11 * time.Second, used + "\n\n"}, {11 * time.Second, done + "\n\n"},
		}
		if fmt.Sprint(parts) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", parts, want)
		}
		second := s.asked("writer.test")[2]
		if !strings.Contains(second, `{"content":"Let me look. ","role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"search","arguments":"{\"q\":1}"}}]}`) ||
			!strings.Contains(second, `"content":"found"`) {
			t.Errorf("the model was told %s", second)
		}
	})
}

// TestTurnStreamsToTheLastByte: also where a model's server leaves out the blank line
// behind its last frame.
func TestTurnStreamsToTheLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		curt := func(text string) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, text)
			}
		}
		writer := alternate(curt(streamedCall[0]+"\n"), curt(chunkOf("It is x.")+"\n\n"+done+"\n"))
		r, s := newTurnRig(t, map[string]http.HandlerFunc{"writer.test": writer, "tools.test": says("found")})
		text, err := r.stream("/v1/turns/look", streamed, as("secret-a"))
		if want := chunkOf("It is x.") + "\n\n" + done + "\n"; err != nil || text != want {
			t.Errorf("got %q, %v, want %q", text, err, want)
		}
		if n := len(s.asked("tools.test")); n != 1 {
			t.Errorf("the tool was called %d times", n)
		}
	})
}

// TestTurnStreamTimesOut: the wait of a later step ends in an event and a cut.
func TestTurnStreamTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		r, s := newTurnRig(t, nil)
		s.hosts["writer.test"] = holding(says("never"), &s)
		occupy(r, "big", time.Minute)
		resp, parts, err := r.partsOf("/v1/turns/polish", streamed)
		if resp.StatusCode != 200 || err == nil {
			t.Errorf("answered %d, ended with %v: a cut is no proper end", resp.StatusCode, err)
		}
		if len(parts) != 3 || parts[0].at != 5*time.Second || parts[0].text != waiting || parts[1].text != waiting || parts[2].at != 12*time.Second ||
			!strings.HasPrefix(parts[2].text, "\n\nevent: error\ndata: {\"error\":{") || !strings.Contains(parts[2].text, `"code":"queue_timeout"`) || !strings.HasSuffix(parts[2].text, "}\n\n") {
			t.Errorf("got %v", parts)
		}
		// The caller has paid for the step that was served.
		if n := 100_000 - r.left(limiter.User, limiter.Tokens, "ann", 100_000); n < 30 || n > 30+600 {
			t.Errorf("%d tokens were spent", n)
		}
	})
}

// TestTurnFirstWait: before its first dispatch a turn sends nothing, and is refused
// with a status; nothing is paid.
func TestTurnFirstWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *stage
		r, s := newTurnRig(t, nil)
		s.hosts["writer.test"] = holding(says("never"), &s)
		occupy(r, "big", time.Minute)
		before := r.left(limiter.User, limiter.Tokens, "ann", 100_000)
		start := time.Now()
		resp, text := r.must(503, "/v1/turns/look", streamed, as("secret-a"))
		if !strings.Contains(text, "queue_timeout") || resp.Header.Get("Content-Type") != "application/json" || time.Since(start) != 12*time.Second {
			t.Errorf("after %v: %s", time.Since(start), text)
		}
		resp, text = r.must(429, "/direct/writer/v1/turns/look", streamed, as("secret-a"))
		if !strings.Contains(text, "capacity_exceeded") || resp.Header.Get("Retry-After") == "" {
			t.Errorf("answered %s", text)
		}
		if n := r.left(limiter.User, limiter.Tokens, "ann", 100_000); n != before {
			t.Errorf("%d tokens were spent on nothing", before-n)
		}
	})
}

// TestTurnStreamBreaks: a step that breaks after something was shown is not replaced.
func TestTurnStreamBreaks(t *testing.T) {
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	synctest.Test(t, func(t *testing.T) {
		r, s := newTurnRig(t, map[string]http.HandlerFunc{"writer.test": frames(cut, chunkOf("half"))})
		text, err := r.stream("/v1/turns/answer", streamed, as("secret-a"))
		if err == nil || strings.Count(text, "event: error") != 1 || !strings.HasPrefix(text, chunkOf("half")) || !strings.Contains(text, "upstream_broke") {
			t.Errorf("got %q, %v", text, err)
		}
		if len(s.asked("spare.test")) != 0 {
			t.Error("another step took over")
		}
	})
}

// TestTurnClientLeaves: everything is given back.
func TestTurnClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		r, _ := newTurnRig(t, map[string]http.HandlerFunc{"writer.test": func(w http.ResponseWriter, req *http.Request) {
			frames(nil, chunkOf("half"))(w, req)
			<-req.Context().Done()
			close(gone)
		}})
		resp, err := r.client.Do(r.request(t.Context(), "/v1/turns/look", streamed, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = bufio.NewReader(resp.Body).ReadString('\n')
		resp.Body.Close()
		<-gone
		synctest.Wait()
		for _, a := range r.agents.States() {
			if a.Held != 0 {
				t.Errorf("%s has %d slots held", a.Name, a.Held)
			}
		}
	})
}

// TestTurnQueuesWhateverTheSwitch: steps are our own work, and wait where a caller's
// request would be shed.
func TestTurnQueuesWhateverTheSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newTurnRig(t, nil)
		x := &exchange{tables: r.tables.Load()}
		for _, c := range []struct {
			direct string
			want   bool
		}{{"", true}, {"writer", false}} {
			inner := (&exchange{tables: x.tables, place: place{workspace: "none", direct: c.direct}}).within(nil, r.request(t.Context(), "/", ""))
			if got := r.queues(t.Context(), inner); got != c.want {
				t.Errorf("direct %q: a step queues: %v", c.direct, got)
			}
		}
	})
}

// TestTurnOutlastsLimits: a step that limits refuse after others were dispatched waits
// until they let it pass. Who waits as long as they are told, and is refused at the
// next step each time, would never be served.
func TestTurnOutlastsLimits(t *testing.T) {
	for _, limit := range []string{"per_model", "per_backend"} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stage{hosts: map[string]http.HandlerFunc{"one.test": says("a", "b")}}
				r := rigOf(t, `
keys: [{id: a, key: secret-a, user: ann}]
upstreams: [{name: one, url: "http://one.test", models: [m]}]
routes: [{path: /v1/chat/*, upstreams: [one]}]
queueing: {queue_timeout: 5s}
rate_limiting: {`+limit+`: {requests: {limit: 1, per: 1s, burst: 1}}}
turns:
  - name: polish
    path: /v1/turns/polish
    steps:
      - {name: draft, model: m, next: final}
      - {name: final, model: m, prompt: "Polish: {{draft}}"}
`, s.ServeHTTP)
				for range 3 {
					start := time.Now()
					r.must(200, "/v1/turns/polish", ask1, as("secret-a"))
					if d := time.Since(start); d > 1100*time.Millisecond {
						t.Errorf("served after %v, want a second for the other step", d)
					}
					time.Sleep(time.Second)
				}
				if n := len(s.asked("one.test")); n != 6 {
					t.Errorf("the upstream was asked %d times, want 6", n)
				}
				r.must(200, "/v1/turns/polish", ask1, as("secret-a"))
				resp, _ := r.must(429, "/v1/turns/polish", ask1, as("secret-a")) // the first step is refused as ever
				if resp.Header.Get("Retry-After") == "" {
					t.Error("refused without Retry-After")
				}
			})
		})
	}
}

// TestBatchOutlastsBackends: batch work waits for per_backend until its deadline.
func TestBatchOutlastsBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{hosts: map[string]http.HandlerFunc{"one.test": says("a")}}
		r := rigOf(t, `
keys: [{id: a, key: secret-a, user: ann}]
upstreams: [{name: one, url: "http://one.test", models: [any]}]
routes: [{path: /v1/chat/*, upstreams: [one]}]
rate_limiting: {per_backend: {requests: {limit: 1, per: 2s, burst: 1}}}
`, s.ServeHTTP)
		start := time.Now()
		for range 3 {
			r.must(200, "/v1/chat/completions", ask1, as("secret-a"), header{"X-Headway-Priority", "batch"}, header{"X-Headway-Deadline-Ms", "20000"})
		}
		if d := time.Since(start); d < 4*time.Second || d > 4500*time.Millisecond {
			t.Errorf("three were served within %v, want 4 s", d)
		}
		r.must(429, "/v1/chat/completions", ask1, as("secret-a"), header{"X-Headway-Priority", "batch"}, header{"X-Headway-Deadline-Ms", "1000"})
		r.must(429, "/v1/chat/completions", ask1, as("secret-a"))
	})
}

// TestOutlastedWaits: what batch work has waited for limits is not taken from its wait
// for an agent; what a step has waited is.
func TestOutlastedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newTurnRig(t, nil)
		refused := &limiter.Refusal{RetryAfter: 2 * time.Second}
		for _, batch := range []bool{true, false} {
			end := time.Now().Add(time.Minute)
			x := &exchange{tables: r.tables.Load(), start: time.Now(), deadline: end, later: !batch, patience: patience{batch: batch, until: end}}
			want := map[bool]time.Duration{true: 0, false: 2 * time.Second}[batch]
			if !x.outlasts(t.Context(), refused) || x.waited != want {
				t.Errorf("batch %v: %v of its wait is used up, want %v", batch, x.waited, want)
			}
		}
	})
}
