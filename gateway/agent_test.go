package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// crew are two agents of one slot each, and a cloud without a bound behind them on
// one path. What a user has left shows what was given back.
const crew = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams:
  - {name: one, url: "http://one.test", slots: 1, queue_depth: 2}
  - {name: two, url: "http://two.test", slots: 1, models: [m], tags: [tools]}
  - {name: cloud, url: "http://cloud.test"}
routes:
  - {path: /v1/*, upstreams: [one, two]}
  - {path: /v1/completions, upstreams: [one]}
  - {path: /v1/responses, upstreams: [one, two], tags: [tools]}
  - {path: /v1/chat/*, upstreams: [one, cloud]}
queueing: {queue_timeout: 2s}
rate_limiting:
  per_user: {requests: {limit: 100, per: 100000h}}
  per_backend: {overrides: {one: {requests: {limit: 3, per: 100000h}}}}
`

const toAgent = `{"model":"m","prompt":"hi"}`

// hold takes an agent's slot.
func (r *rig) hold(names ...string) (free func()) {
	r.t.Helper()
	var slots []*agents.Slot
	for _, name := range names {
		s, err := r.agents.Acquire(context.Background(), agents.Want{Agents: []string{name}, Tenant: "x", Weight: 1})
		if err != nil {
			r.t.Fatal(err)
		}
		slots = append(slots, s)
	}
	return func() {
		for _, s := range slots {
			s.Free(false)
		}
	}
}

// told sends a request that is refused with a code, after so long.
func (r *rig) told(path string, status int, code string, after time.Duration) (*http.Response, string) {
	r.t.Helper()
	before := time.Now()
	resp, text := r.must(status, path, toAgent, as("secret-a"))
	if d := time.Since(before).Round(100 * time.Millisecond); !strings.Contains(text, `"code":"`+code+`"`) || d != after {
		r.t.Errorf("%s: after %v, want %s after %v: %s", path, d, code, after, text)
	}
	return resp, text
}

// aside sends a request from a goroutine of its own and returns the answer's body.
func (r *rig) aside(path string) string {
	resp, err := r.client.Do(r.request(context.Background(), path, toAgent, as("secret-a")))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // a test sees what is missing
	return string(text)
}

func TestSaturatedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, crew, nil)
		free := r.hold("one", "two")
		for _, c := range []struct {
			name, path string
			status     int
			code       string
			after      time.Duration
		}{
			{"direct", "/direct/one/v1/completions", 429, "capacity_exceeded", 0},
			{"direct_anthropic", "/direct/two/v1/messages", 429, "capacity_exceeded", 0},
			{"timeout", "/v1/completions", 503, "queue_timeout", 2 * time.Second},
			{"timeout_anthropic", "/v1/messages", 503, "queue_timeout", 2 * time.Second},
		} {
			resp, text := r.told(c.path, c.status, c.code, c.after)
			golden(t, "answers/saturated_"+c.name, answer(resp, text))
		}
		if left := r.left(limiter.User, limiter.Requests, "ann", 100); left != 100 {
			t.Errorf("of 100 requests, %d are left after some that were never started", left)
		}
		free()
	})
}

func TestLineIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, crew, nil)
		free := r.hold("one")
		for range 2 {
			go r.aside("/v1/completions")
		}
		time.Sleep(100 * time.Millisecond)
		r.told("/v1/completions", 503, "queue_full", 0)
		free()
		time.Sleep(time.Second)
	})
}

func TestWaitingRequestIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, crew, nil)
		free := r.hold("one", "two")
		time.AfterFunc(time.Second, free)
		before := time.Now()
		resp, _ := r.must(200, "/v1/embeddings", toAgent, as("secret-a"))
		if d := time.Since(before); d < time.Second || d > time.Second+50*time.Millisecond || resp.Header.Get("X-Server") == "cloud" {
			t.Errorf("served after %v by %s", d, resp.Header.Get("X-Server"))
		}
		// One that is tagged goes to the agent that has the tag, and waits for no other.
		free = r.hold("two")
		r.told("/v1/responses", 503, "queue_timeout", 2*time.Second)
		free()
		if resp, _ := r.must(200, "/v1/responses", toAgent, as("secret-a")); resp.Header.Get("X-Server") != "two" {
			t.Errorf("a request that needs a tag went to %s", resp.Header.Get("X-Server"))
		}
	})
}

// TestCloudBehindAgent: with an upstream without a bound behind it, nobody waits.
func TestCloudBehindAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, crew, nil)
		by := func(want string) {
			t.Helper()
			resp, text := r.do("/v1/chat/completions", toAgent, as("secret-a"))
			if got := resp.Header.Get("X-Server"); got != want || resp.StatusCode != 200 {
				t.Errorf("%d by %q, want %s: %s", resp.StatusCode, got, want, text)
			}
		}
		by("one")
		free := r.hold("one")
		by("cloud")
		free()
		by("one")
		by("one")
		by("cloud") // the limit of one is used up
		r.hold("one")()
	})
}

// TestDeadAgent: one that cannot be reached is passed over, and then left alone.
func TestDeadAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, strings.Replace(crew, "requests: {limit: 3", "requests: {limit: 30", 1), nil)
		r.dead.Store("one.test:80", true)
		for range 5 {
			if resp, text := r.must(200, "/v1/embeddings", toAgent, as("secret-a")); resp.Header.Get("X-Server") != "two" {
				t.Errorf("served by %s: %s", resp.Header.Get("X-Server"), text)
			}
		}
		if s := r.agents.States()[0]; s.Name != "one" || s.Healthy || s.Held != 0 {
			t.Errorf("after failures: %+v", s)
		}
		_, text := r.told("/v1/completions", 503, "capacity_exceeded", 0)
		if !strings.Contains(text, `"retry_strategy":`) || !strings.Contains(text, `"retry_after":1`) {
			t.Errorf("no agent is well: %s", text)
		}
		r.dead.Delete("one.test:80")
		time.Sleep(time.Second)
		r.must(200, "/v1/completions", toAgent, as("secret-a"))
		if !r.agents.States()[0].Healthy {
			t.Error("it answers, and is not taken for well")
		}
	})
}

// TestSickAgent: one that answers 500 is left alone; what the client is told is what it
// said.
func TestSickAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oh", http.StatusInternalServerError) }
		r := newThree(t, strings.Replace(crew, "requests: {limit: 3", "requests: {limit: 30", 1), map[string]http.HandlerFunc{"one": bad})
		for range 3 {
			r.must(500, "/v1/completions", toAgent, as("secret-a"))
		}
		for range 3 {
			r.must(200, "/v1/embeddings", toAgent, as("secret-a"))
		}
		r.told("/v1/completions", 503, "capacity_exceeded", 0)
	})
}

// TestWhoLeavesLeavesNothing: a client that leaves while it waits, or while it is
// answered, frees its place and its slot.
func TestWhoLeavesLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, crew, map[string]http.HandlerFunc{"one": slow(time.Minute)})
		ctx, leave := context.WithCancel(context.Background())
		ended := make(chan error)
		for range 2 {
			go func() {
				_, err := r.client.Do(r.request(ctx, "/v1/completions", toAgent, as("secret-a")))
				ended <- err
			}()
		}
		time.Sleep(100 * time.Millisecond)
		if s := r.agents.States()[0]; s.Held != 1 || s.Waiting != 1 {
			t.Errorf("one is answered and one waits: %+v", s)
		}
		leave()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		time.Sleep(10 * time.Millisecond)
		if s := r.agents.States()[0]; s.Held != 0 || s.Waiting != 0 || !s.Healthy {
			t.Errorf("after they left: %+v", s)
		}
	})
}

// TestSlotIsFreeWithTheLastByte: who has a whole answer may ask again at once.
func TestSlotIsFreeWithTheLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, strings.Replace(crew, "requests: {limit: 3", "requests: {limit: 30", 1), nil)
		for i := range 10 {
			resp, text := r.do("/direct/one/v1/completions", toAgent, as("secret-a"))
			if resp.StatusCode != 200 {
				t.Fatalf("request %d: %d: %s", i, resp.StatusCode, text)
			}
		}
	})
}

func TestDrainTurnsWaitersAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, crew, nil)
		free := r.hold("one")
		time.AfterFunc(time.Second, r.Drain)
		r.told("/v1/completions", 503, "draining", time.Second)
		free()
		r.must(200, "/v1/completions", toAgent, as("secret-a"))
	})
}

func TestDirectPathNeedsTheRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, crew, nil)
		for path, status := range map[string]int{
			"/direct/two/v1/embeddings":  200,
			"/direct/two/v1/completions": 404, // not one of that route's
			"/direct/none/v1/embeddings": 404,
		} {
			r.must(status, path, toAgent, as("secret-a"))
		}
	})
}

// TestAgentsFollowAReload: slots, and that an upstream is an agent at all.
func TestAgentsFollowAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, crew, nil)
		free := r.hold("one")
		served := make(chan string)
		go func() { served <- r.aside("/v1/completions") }()
		time.Sleep(100 * time.Millisecond)
		for i, text := range []string{strings.Replace(crew, "slots: 1, queue_depth: 2", "slots: 2", 1), strings.Replace(crew, "slots: 1, queue_depth: 2", "slots: 0", 1)} {
			cfg, err := config.Parse([]byte(text), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Reload(cfg, cfg.Limiter()); err != nil {
				t.Fatal(err)
			}
			if i == 0 && !strings.Contains(<-served, "hi") {
				t.Error("a waiter was not served by a new slot")
			}
		}
		for range 2 {
			r.must(200, "/v1/completions", toAgent, as("secret-a"))
		}
		if n := len(r.agents.States()); n != 1 {
			t.Errorf("%d agents are left of one", n)
		}
		free()
	})
}

// TestAgentsNeedAStore: a gateway without one says so, at the start and later.
func TestAgentsNeedAStore(t *testing.T) {
	cfg, err := config.Parse([]byte(crew), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, nil, Options{}); err == nil || !strings.Contains(fmt.Sprint(err), "Options.Slots") {
		t.Errorf("the error is %v", err)
	}
}
