package fleettest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// Bounds of the agents in these tests. The line has room for all requests of the table;
// the timeout is above what a slow machine takes to send them.
const (
	agentSlots   = 2
	agentDepth   = 128
	queueTimeout = 6 * time.Second
)

// agentConfig has two agents, one of which serves a model alone, and three workspaces:
// one that queues, one that sheds, one that never said. Its plain paths are of a key
// that is in the first. Whole seconds told to clients are from 1 to 60.
const agentConfig = `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
fleet: {bind: "127.0.0.1:0"JOIN}
redis: {mode: standalone, address: "REDIS", timeout: 2s}
keys:
  - {id: ann, key: sk-ann, user: ann, workspace: patient, workspaces: [{id: patient, role: owner}, {id: hasty, role: owner}, {id: silent, role: owner}]}
  - {id: bob, key: sk-bob, user: bob, workspace: hasty, workspaces: [{id: patient, role: member}, {id: hasty, role: manager}]}
workspaces:
  - {id: patient, inference_queueing_enabled: true}
  - {id: hasty, inference_queueing_enabled: false}
  - {id: silent}
projects: [{id: calm, workspace: patient}, {id: rush, workspace: hasty}, {id: quiet, workspace: silent}]
upstreams:
  - {name: one, url: "ONE", slots: 2, models: [sim, both], queue_depth: 128}
  - {name: two, url: "TWO", slots: 2, models: [both], queue_depth: 64}
routes: [{path: "/v1/*", upstreams: [one, two]}]
queueing: {queue_timeout: 6s}
`

// crew is a fleet in front of two agents, each with a judge of its own.
type crew struct {
	t        *testing.T
	replicas []*replica
	one, two *bench.Upstream
	slots    int // of agent one
}

// startCrew starts n replicas in front of two agents. Pairs replace texts of agentConfig.
func startCrew(t *testing.T, n int, pairs ...string) *crew {
	t.Helper()
	redis := redisproc.Start(t)
	c := &crew{t: t, one: startProvider(t), two: startProvider(t), slots: agentSlots}
	join := ""
	for range n {
		text := strings.NewReplacer(append(pairs, "JOIN", join, "REDIS", redis.Addr(), "ONE", c.one.URL, "TWO", c.two.URL)...).Replace(agentConfig)
		r := startReplica(t, text)
		c.replicas, join = append(c.replicas, r), fmt.Sprintf(", join: [%q]", r.gossip)
	}
	eventually(t, startTimeout, "all replicas see each other and are ready", func() bool {
		for _, r := range c.replicas {
			if r.metric(t, "headway_fleet_members") != float64(n) || !r.ready(t) {
				return false
			}
		}
		return true
	})
	return c
}

// call is one request to an agent.
type call struct {
	replica int
	prefix  string // before /v1
	path    string // after /v1
	key     string
	model   string
	stream  bool
	latency time.Duration // of the agent
	held    bool          // by the agent, until it is released
}

func (c call) String() string {
	return fmt.Sprintf("%s%s by %s, model %s, stream %v, replica %d", c.prefix, c.path, c.key, c.model, c.stream, c.replica)
}

// bodies are what each endpoint takes; a form where it begins with nothing.
var bodies = map[string]string{
	"/chat/completions":     `"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4`,
	"/responses":            `"input": "Hello", "max_output_tokens": 4`,
	"/embeddings":           `"input": ["Hello", "you"]`,
	"/rerank":               `"query": "Hello", "documents": ["a", "b"]`,
	"/score":                `"text_1": "Hello", "text_2": ["a", "b"]`,
	"/messages":             `"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4`,
	"/audio/speech":         `"input": "Hello", "voice": "v"`,
	"/audio/transcriptions": "",
	"/audio/translations":   "",
}

// streams are the endpoints that stream.
var streams = map[string]bool{
	"/chat/completions": true, "/responses": true, "/messages": true, "/audio/speech": true, "/audio/transcriptions": true,
}

// body is the request's, and its type.
func (c call) body() (io.Reader, string) {
	if rest := bodies[c.path]; rest != "" {
		return strings.NewReader(fmt.Sprintf(`{"model": %q, "stream": %v, %s}`, c.model, c.stream, rest)), "application/json"
	}
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	form.WriteField("model", c.model)
	form.WriteField("stream", strconv.FormatBool(c.stream))
	file, err := form.CreateFormFile("file", "hello.wav")
	if err != nil {
		panic(err) // a buffer
	}
	file.Write(bytes.Repeat([]byte("RIFF"), 64))
	form.Close()
	return &b, form.FormDataContentType()
}

// send makes the request and reads its whole answer.
func (c *crew) send(ctx context.Context, q call) (a answer) {
	body, kind := q.body()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.replicas[q.replica].url+q.prefix+"/v1"+q.path, body)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+q.key)
	req.Header.Set("Content-Type", kind)
	req.Header.Set(bench.HeaderLatency, q.latency.String())
	if q.held {
		req.Header.Set(bench.HeaderLatency, bench.LatencyHeld)
	}
	req.Header.Set(bench.HeaderTenant, q.key)
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

// all sends requests at once and hands each answer to check.
func (c *crew) all(calls []call, check func(q call, a answer)) {
	c.t.Helper()
	var sent sync.WaitGroup
	answers := make([]answer, len(calls))
	for i, q := range calls {
		sent.Go(func() { answers[i] = c.send(c.t.Context(), q) })
	}
	sent.Wait()
	for i, q := range calls {
		check(q, answers[i])
	}
}

// occupy holds all slots of agent one until the function it returns is called.
func (c *crew) occupy() (release func()) {
	c.t.Helper()
	var held sync.WaitGroup
	for i := range c.slots {
		q := call{replica: i % len(c.replicas), prefix: "/workspaces/patient", path: "/chat/completions", key: "sk-ann", model: "sim", held: true}
		held.Go(func() { c.served(q, c.send(c.t.Context(), q)) })
	}
	eventually(c.t, startTimeout, "all slots are held", func() bool { return c.one.Ledger().Snapshot().Total.InFlight == int64(c.slots) })
	return func() { c.one.Release(); held.Wait() }
}

// scopes are where one can stand, what the workspace there says, and the key that is
// allowed there.
var scopes = []struct {
	prefix, key string
	queues      bool
}{
	{"", "sk-ann", true}, {"", "sk-bob", false},
	{"/workspaces/patient", "sk-ann", true}, {"/workspaces/hasty", "sk-bob", false}, {"/workspaces/silent", "sk-ann", true},
	{"/projects/calm", "sk-bob", true}, {"/projects/rush", "sk-ann", false}, {"/projects/quiet", "sk-ann", true},
	{"/direct/one", "sk-ann", false}, {"/direct/one", "sk-bob", false},
}

// table lists every endpoint in every scope that queues, or does not, streamed and not,
// over all replicas.
func (c *crew) table(queues bool) (calls []call) {
	for path := range bodies {
		for _, s := range scopes {
			for _, stream := range []bool{false, true} {
				if s.queues == queues && (!stream || streams[path]) {
					calls = append(calls, call{replica: len(calls) % len(c.replicas), prefix: s.prefix, path: path, key: s.key, model: "sim", stream: stream})
				}
			}
		}
	}
	return calls
}

// served checks an answer of the agent.
func (c *crew) served(q call, a answer) {
	c.t.Helper()
	if a.err != nil || a.status != http.StatusOK || len(a.body) == 0 {
		c.t.Errorf("%v: %v, want it to be served", q, a)
	}
	sse := strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream")
	if q.stream && q.path != "/audio/speech" && (!sse || !strings.Contains(a.body, "data: ")) {
		c.t.Errorf("%v: no stream of events: %v", q, a)
	}
}

// refused checks an answer of ours: status, code, both headers and every field.
func (c *crew) refused(q call, a answer, status int, code string) {
	c.t.Helper()
	var body struct {
		Type  string
		Error struct {
			Message, Type, Code string
			RetryAfter          int64 `json:"retry_after"`
			RetryStrategy       *struct {
				Type           string
				InitialDelayMS int64   `json:"initial_delay_ms"`
				MaxDelayMS     int64   `json:"max_delay_ms"`
				Multiplier     float64 `json:"multiplier"`
				Jitter         float64 `json:"jitter"`
			} `json:"retry_strategy"`
		}
	}
	err := json.Unmarshal([]byte(a.body), &body)
	e, secs := body.Error, a.header.Get("Retry-After")
	bad := func(what string) { c.t.Helper(); c.t.Errorf("%v: %s: %v %v", q, what, a, a.header) }
	switch {
	case a.err != nil || err != nil || a.status != status || e.Code != code:
		bad(fmt.Sprintf("want %d %s", status, code))
		return
	case !strings.HasPrefix(a.header.Get("Content-Type"), "application/json"):
		bad("it is no JSON")
	case e.RetryAfter < 1 || e.RetryAfter > 60 || secs != strconv.FormatInt(e.RetryAfter, 10):
		bad("Retry-After is not from 1 to 60, or differs from the body")
	case e.Message == "":
		bad("it has no message")
	case (body.Type == "error") != (q.path == "/messages"):
		bad("it is in the other API's shape")
	}
	kind := map[bool]map[int]string{
		false: {429: "rate_limit_error", 503: "server_error"}, true: {429: "rate_limit_error", 503: "overloaded_error"},
	}[q.path == "/messages"][status]
	if e.Type != kind {
		bad("want the type " + kind)
	}
	s := e.RetryStrategy
	if (s != nil) != (code == "capacity_exceeded") {
		bad("a retry_strategy belongs to capacity_exceeded alone")
	} else if s != nil && (s.Type != "exponential_backoff" || s.InitialDelayMS < 1 || s.InitialDelayMS > e.RetryAfter*1000 || s.MaxDelayMS < s.InitialDelayMS || s.Multiplier <= 1 || s.Jitter <= 0 || s.Jitter > 1) {
		bad("its retry_strategy makes no sense")
	}
}

// quick is what an answer that waits for nothing takes at most on a busy machine.
const quick = 2 * time.Second

// TestSaturationTable is the table of what becomes of a request, cell by cell, for every
// endpoint in every place, streamed and not.
func TestSaturationTable(t *testing.T) {
	c := startCrew(t, 3)
	queueing, shedding := c.table(true), c.table(false)
	starts := func() int64 { return c.one.Ledger().Snapshot().Total.Starts }

	// A slot is free: dispatched at once, whatever the workspace says.
	for _, q := range append(append([]call{}, queueing...), shedding...) {
		// What the one before held on another replica may be free a moment later.
		var a answer
		eventually(t, startTimeout, "a slot is free", func() bool {
			a = c.send(t.Context(), q)
			return a.status != http.StatusTooManyRequests
		})
		c.served(q, a)
	}
	if n := starts(); n != int64(len(queueing)+len(shedding)) {
		t.Errorf("the agent saw %d requests of %d", n, len(queueing)+len(shedding))
	}

	// Saturated and shed: refused at once, and nothing is dispatched.
	release := c.occupy()
	before := starts()
	c.all(shedding, func(q call, a answer) {
		c.refused(q, a, http.StatusTooManyRequests, "capacity_exceeded")
		if a.took > quick {
			t.Errorf("%v: shed after %v", q, a.took)
		}
	})
	if n := starts(); n != before {
		t.Errorf("%d requests that were shed were dispatched", n-before)
	}

	// Saturated and queued: waits, and is dispatched once a slot is free.
	var waiting sync.WaitGroup
	waiting.Go(func() { c.all(queueing, c.served) })
	c.waiting(len(queueing))
	if n := starts(); n != before {
		t.Errorf("%d requests were dispatched to an agent without a free slot", n-before)
	}
	release()
	waiting.Wait()

	// Saturated for too long: 503, and nothing is dispatched. Meanwhile those that
	// come to a full line are told at once.
	release = c.occupy()
	before = starts()
	waiting.Go(func() {
		c.all(queueing, func(q call, a answer) {
			c.refused(q, a, http.StatusServiceUnavailable, "queue_timeout")
			if a.took < queueTimeout || a.took > queueTimeout+quick {
				t.Errorf("%v: told after %v that it has waited %v", q, a.took, queueTimeout)
			}
		})
	})
	c.waiting(len(queueing))
	full := 0
	fillers := make([]call, agentDepth+1)
	for i := range fillers {
		fillers[i] = call{path: "/chat/completions", key: "sk-ann", model: "sim"}
	}
	waiting.Go(func() {
		c.all(fillers, func(q call, a answer) {
			code := "queue_timeout"
			if strings.Contains(a.body, "queue_full") {
				code, full = "queue_full", full+1
			}
			c.refused(q, a, http.StatusServiceUnavailable, code)
		})
	})
	eventually(t, startTimeout, "a line is full", func() bool {
		return c.replicas[0].metric(t, `headway_agent_refused_total{reason="queue_full"}`) > 0
	})
	late := c.table(true)
	for i := range late {
		late[i].replica = 0
	}
	c.all(late, func(q call, a answer) {
		c.refused(q, a, http.StatusServiceUnavailable, "queue_full")
		if a.took > quick {
			t.Errorf("%v: told after %v that the line is full", q, a.took)
		}
	})
	waiting.Wait()
	release()
	if full == 0 {
		t.Error("no line was ever full")
	}
	if n := starts(); n != before {
		t.Errorf("%d requests were dispatched to an agent without a free slot", n-before)
	}
	for name, p := range map[string]*bench.Upstream{"one": c.one, "two": c.two} {
		if peak := p.Ledger().Snapshot().Total.Peak; peak > agentSlots {
			t.Errorf("%d requests ran at once at agent %s, which has %d slots", peak, name, agentSlots)
		}
	}
}

// waiting waits until n requests stand in lines, over the fleet.
func (c *crew) waiting(n int) {
	c.t.Helper()
	eventually(c.t, startTimeout, fmt.Sprintf("%d requests wait", n), func() bool {
		sum := 0.0
		for _, r := range c.replicas {
			sum += r.metric(c.t, `headway_agent_waiting{agent="one"}`) + r.metric(c.t, `headway_agent_waiting{agent="two"}`)
		}
		return int(sum) == n
	})
}

// TestKilledReplicaGivesItsAgentsBack: the slots of a replica that dies are free when its
// lease is over, and those who wait elsewhere have them.
func TestKilledReplicaGivesItsAgentsBack(t *testing.T) {
	const lease = 2 * time.Second // a machine that stands still for one loses nobody's slots
	c := startCrew(t, 2, "queueing: {", "rate_limiting: {lease_ttl: 2s}\nqueueing: {")
	var held sync.WaitGroup
	for range c.slots {
		q := call{replica: 0, path: "/chat/completions", key: "sk-ann", model: "sim", latency: time.Minute}
		held.Go(func() { c.send(t.Context(), q) })
	}
	eventually(t, startTimeout, "one replica holds all slots", func() bool { return c.one.Ledger().Snapshot().Total.InFlight == int64(c.slots) })
	var waits sync.WaitGroup
	for range 2 * c.slots {
		q := call{replica: 1, path: "/chat/completions", key: "sk-ann", model: "sim"}
		waits.Go(func() { c.served(q, c.send(t.Context(), q)) })
	}
	eventually(t, startTimeout, "others wait", func() bool {
		return c.replicas[1].metric(t, `headway_agent_waiting{agent="one"}`) == float64(2*c.slots)
	})
	killed := time.Now()
	c.replicas[0].kill()
	held.Wait()
	waits.Wait()
	if took := time.Since(killed); took > 2*lease+quick {
		t.Errorf("they were served %v after the replica was killed, its lease is %v", took, lease)
	}
}
