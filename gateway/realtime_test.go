package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/headway-limiter/headway/limiter"
)

const realtimeRig = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: ears, url: "http://ears.test", slots: 1, credential: upstream-secret}]
routes: [{path: /v1/*, upstream: ears}]
server: {max_body: 8KiB}
rate_limiting:
  per_api_key: {max_in_flight_requests: 2}
  per_user: {tokens: {limit: 1000, per: 100000h}}
`

// ears is an agent that transcribes: it commits when it is told to, or by itself when
// audio says so, and answers when release is called.
type ears struct {
	t      *testing.T
	mu     sync.Mutex
	seen   []string // types of events, in order
	header http.Header
	conn   *websocket.Conn
	item   int
}

func (e *ears) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"realtime"}})
	if err != nil {
		return
	}
	e.mu.Lock()
	e.conn, e.header = conn, r.Header
	e.mu.Unlock()
	for {
		_, data, err := conn.Read(context.Background())
		if err != nil {
			e.note("closed " + fmt.Sprint(int(websocket.CloseStatus(err))))
			return
		}
		var ev struct {
			Type, Audio string
			EventID     string `json:"event_id"`
		}
		_ = json.Unmarshal(data, &ev)
		e.note(strings.TrimPrefix(ev.Type, "input_audio_buffer."))
		switch {
		case ev.Audio == "speech":
			e.item++
			e.say(fmt.Sprintf(`{"type":"input_audio_buffer.speech_started","item_id":"item_%d"}`, e.item))
		case ev.Type == evCommit && ev.EventID == "empty":
			e.say(`{"type":"error","error":{"code":"input_audio_buffer_commit_empty","message":"empty"}}`)
		case ev.Type == evCommit:
			e.item++
			e.say(fmt.Sprintf(`{"type":"input_audio_buffer.committed","item_id":"item_%d"}`, e.item))
		case ev.Type == evClear:
			e.say(`{"type":"input_audio_buffer.cleared"}`)
		}
	}
}

func (e *ears) note(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, what)
}

// say sends an event to the client.
func (e *ears) say(event string) {
	e.mu.Lock()
	conn := e.conn
	e.mu.Unlock()
	_ = conn.Write(context.Background(), websocket.MessageText, []byte(event))
}

// transcribe ends a turn.
func (e *ears) transcribe(item int) {
	e.say(fmt.Sprintf(`{"type":"conversation.item.input_audio_transcription.completed","item_id":"item_%d","transcript":"hi","usage":{"type":"tokens","total_tokens":7}}`, item))
}

func (e *ears) was(want ...string) {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if strings.Join(e.seen, " ") != strings.Join(want, " ") {
		e.t.Errorf("the agent has seen %q, want %q", e.seen, want)
	}
}

// talker is a client.
type talker struct {
	t *testing.T
	*websocket.Conn
}

func (r *rig) talk(path string, headers http.Header, protocols ...string) (*talker, *http.Response, error) {
	r.t.Helper()
	conn, resp, err := websocket.Dial(context.Background(), "http://gateway.test"+path, &websocket.DialOptions{
		HTTPClient: r.client, HTTPHeader: headers, Subprotocols: protocols,
	})
	if err != nil {
		return nil, resp, err
	}
	r.t.Cleanup(func() { _ = conn.CloseNow(); synctest.Wait() })
	synctest.Wait() // the agent has its end
	return &talker{r.t, conn}, resp, nil
}

func (r *rig) mustTalk() *talker {
	r.t.Helper()
	c, _, err := r.talk("/v1/realtime?intent=transcription", http.Header{"Authorization": {"Bearer secret-a"}})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (c *talker) send(event string) {
	c.t.Helper()
	if err := c.Write(context.Background(), websocket.MessageText, []byte(event)); err != nil {
		c.t.Fatal(err)
	}
}

// hears reads events of these types, and returns the last.
func (c *talker) hears(kinds ...string) string {
	c.t.Helper()
	var data []byte
	for _, kind := range kinds {
		var err error
		if _, data, err = c.Read(context.Background()); err != nil {
			c.t.Fatalf("instead of %s: %v", kind, err)
		}
		if e, _ := readEvent(data); e.kind != kind {
			c.t.Fatalf("heard %s, want %s", data, kind)
		}
	}
	return string(data)
}

// ends reads until the close, and returns its code.
func (c *talker) ends() websocket.StatusCode {
	for {
		if _, _, err := c.Read(context.Background()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

const (
	appendAudio = `{"type":"input_audio_buffer.append","audio":"AAAA"}`
	speech      = `{"type":"input_audio_buffer.append","audio":"speech"}`
	commit      = `{"type":"input_audio_buffer.commit","event_id":"c"}`
)

func inRealtime(t *testing.T, f func(r *rig, e *ears)) {
	synctest.Test(t, func(t *testing.T) {
		e := &ears{t: t}
		r := rigOf(t, realtimeRig, e.ServeHTTP)
		f(r, e)
	})
}

// heldSlots is how many slots are taken of all agents.
func (r *rig) heldSlots() (n int) {
	for _, a := range r.agents.States() {
		n += a.Held
	}
	return n
}

// TestRealtime: one session holds the slot for its utterance, another is told that
// there is none, keeps its session and is served when it is free.
func TestRealtime(t *testing.T) {
	inRealtime(t, func(r *rig, e *ears) {
		first := r.mustTalk()
		ear1 := e.conn
		second := r.mustTalk()
		ear2 := e.conn
		if e.header.Get("Authorization") != "Bearer upstream-secret" {
			t.Errorf("the agent saw %v", e.header)
		}
		e.conn = ear1
		first.send(appendAudio)
		first.send(commit)
		first.hears(evCommitted)
		if n := r.heldSlots(); n != 1 {
			t.Errorf("%d slots are held", n)
		}
		e.was("append", "commit")
		e.conn = ear2
		second.send(appendAudio)
		second.send(commit)
		refused := second.hears(evError)
		if !strings.Contains(refused, `"code":"capacity_exceeded"`) || !strings.Contains(refused, `"event_id":"c"`) {
			t.Errorf("told %s", refused)
		}
		second.hears(evCleared)
		e.was("append", "commit", "append", "clear")
		e.conn = ear1
		e.transcribe(1)
		first.hears(evCompleted)
		if n := r.heldSlots(); n != 0 {
			t.Errorf("%d slots are held when the transcript is there", n)
		}
		e.conn = ear2
		second.send(commit)
		second.hears(evCommitted)
		e.say(`{"type":"conversation.item.input_audio_transcription.failed","item_id":"item_2"}`)
		second.hears(evFailed)
		if n := r.heldSlots(); n != 0 {
			t.Errorf("%d slots are held after a failure", n)
		}
		_ = first.Close(4001, "bye")
		synctest.Wait()
		_ = second.CloseNow()
		synctest.Wait()
		if n := 1000 - r.left(limiter.User, limiter.Tokens, "ann", 1000); n != 7 {
			t.Errorf("%d tokens were spent, want 7", n)
		}
		e.was("append", "commit", "append", "clear", "commit", "closed 4001", "closed 1011")
	})
}

// TestRealtimeVAD: the agent hears where speech begins; refused, it is dropped for a
// while, and tried again.
func TestRealtimeVAD(t *testing.T) {
	inRealtime(t, func(r *rig, e *ears) {
		c := r.mustTalk()
		c.send(speech)
		c.hears(evSpeech)
		if n := r.heldSlots(); n != 1 {
			t.Errorf("%d slots are held", n)
		}
		e.say(`{"type":"input_audio_buffer.committed","item_id":"item_1"}`)
		c.hears(evCommitted)
		c.send(speech) // while the first is transcribed
		if text := c.hears(evError); !strings.Contains(text, "capacity_exceeded") {
			t.Errorf("told %s", text)
		}
		c.hears(evCleared)
		c.send(speech) // the rest of the same utterance
		e.say(`{"type":"input_audio_buffer.speech_stopped","item_id":"item_2"}`)
		e.transcribe(1)
		c.hears(evCompleted)
		e.was("append", "append", "clear")
		time.Sleep(deafness)
		c.send(speech)
		c.hears(evSpeech)
		c.send(`{"type":"input_audio_buffer.clear"}`)
		c.hears(evCleared)
		if n := r.heldSlots(); n != 0 {
			t.Errorf("%d slots are held after a clear", n)
		}
	})
}

// TestRealtimeGivesBack: every way in which a turn may end without a transcript.
func TestRealtimeGivesBack(t *testing.T) {
	for name, ending := range map[string]func(r *rig, e *ears, c *talker){
		"an empty commit": func(_ *rig, e *ears, c *talker) {
			c.send(`{"type":"input_audio_buffer.commit","event_id":"empty"}`)
			c.hears(evError)
		},
		"too late": func(r *rig, _ *ears, c *talker) {
			c.send(commit)
			c.hears(evCommitted)
			for range 3 { // somebody is there
				time.Sleep(50 * time.Second)
				c.send(appendAudio)
			}
		},
		"the client leaves": func(_ *rig, _ *ears, c *talker) { c.send(commit); c.hears(evCommitted); _ = c.CloseNow() },
		"the agent leaves": func(_ *rig, e *ears, c *talker) {
			c.send(commit)
			c.hears(evCommitted)
			go func() { _ = e.conn.Close(4002, "over") }()
			if code := c.ends(); code != 4002 {
				t.Errorf("the client is told %d", code)
			}
		},
		"silence": func(_ *rig, _ *ears, c *talker) {
			c.send(commit)
			c.hears(evCommitted)
			start := time.Now()
			if code := c.ends(); code != websocket.StatusGoingAway || time.Since(start) != 120*time.Second {
				t.Errorf("the client is told %d after %v", code, time.Since(start))
			}
		},
		"too large": func(_ *rig, _ *ears, c *talker) {
			c.send(commit)
			c.hears(evCommitted)
			go func() { // whoever sends is to read meanwhile
				_ = c.Write(context.Background(), websocket.MessageText, []byte(`{"type":"input_audio_buffer.append","audio":"`+strings.Repeat("A", 9000)+`"}`))
			}()
			if code := c.ends(); code != websocket.StatusMessageTooBig {
				t.Errorf("the client is told %d", code)
			}
		},
		"binary": func(_ *rig, _ *ears, c *talker) {
			c.send(commit)
			c.hears(evCommitted)
			_ = c.Write(context.Background(), websocket.MessageBinary, []byte("x"))
			if code := c.ends(); code != websocket.StatusUnsupportedData {
				t.Errorf("the client is told %d", code)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRealtime(t, func(r *rig, e *ears) {
				c := r.mustTalk()
				ending(r, e, c)
				synctest.Wait()
				time.Sleep(goodbye)
				if n := r.heldSlots(); n != 0 {
					t.Errorf("%d slots are held", n)
				}
			})
		})
	}
}

// TestRealtimeEvents: only what transcription needs reaches the agent.
func TestRealtimeEvents(t *testing.T) {
	inRealtime(t, func(r *rig, e *ears) {
		c := r.mustTalk()
		for _, event := range []string{`{"type":"response.create","event_id":"x"}`, `{"type":"conversation.item.create"}`, `[]`, `{"type":"input_audio_buffer.append","type":"input_audio_buffer.commit"}`} {
			c.send(event)
			if text := c.hears(evError); !strings.Contains(text, "unsupported_event") {
				t.Errorf("%s: told %s", event, text)
			}
		}
		c.send(`{"type":"session.update","session":{}}`)
		synctest.Wait()
		e.was("session.update")
	})
}

// TestRealtimeHandshake: keys, limits and paths are checked before it.
func TestRealtimeHandshake(t *testing.T) {
	inRealtime(t, func(r *rig, e *ears) {
		key := http.Header{"Authorization": {"Bearer secret-a"}}
		for _, c := range []struct {
			path      string
			header    http.Header
			protocols []string
			status    int
		}{
			{"/v1/realtime?intent=transcription", nil, nil, 401},
			{"/v1/realtime?intent=transcription", nil, []string{"realtime", "openai-insecure-api-key.wrong"}, 401},
			{"/v1/realtime", key, nil, 400},
			{"/direct/nobody/v1/realtime?intent=transcription", key, nil, 404},
		} {
			_, resp, err := r.talk(c.path, c.header, c.protocols...)
			if err == nil || resp == nil || resp.StatusCode != c.status {
				t.Errorf("%s %v: %v, %v, want %d", c.path, c.protocols, resp, err, c.status)
			}
		}
		c, _, err := r.talk("/v1/realtime?intent=transcription", http.Header{"Origin": {"https://app.test"}}, "realtime", "openai-insecure-api-key.secret-a", "openai-beta.realtime-v1")
		if err != nil {
			t.Fatal(err)
		}
		if got := e.header.Get("Sec-Websocket-Protocol"); c.Subprotocol() != "realtime" || strings.Contains(got, "secret-a") || !strings.Contains(got, "openai-beta.realtime-v1") {
			t.Errorf("the client speaks %q, the agent was offered %q", c.Subprotocol(), got)
		}
		// A session is a request that runs: the key may have two.
		d := r.mustTalk()
		if _, resp, err := r.talk("/v1/realtime?intent=transcription", key); err == nil || resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("a third session: %v", err)
		}
		_ = d.Close(websocket.StatusNormalClosure, "")
		synctest.Wait()
		r.mustTalk()
	})
}

// TestRealtimeDrains: no new sessions, no new utterances, and goodbye in the end.
func TestRealtimeDrains(t *testing.T) {
	inRealtime(t, func(r *rig, e *ears) {
		c := r.mustTalk()
		c.send(commit)
		c.hears(evCommitted)
		r.Drain()
		if _, resp, err := r.talk("/v1/realtime?intent=transcription", http.Header{"Authorization": {"Bearer secret-a"}}); err == nil || resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("a new session: %v", err)
		}
		c.send(commit)
		if text := c.hears(evError); !strings.Contains(text, `"code":"draining"`) {
			t.Errorf("told %s", text)
		}
		c.hears(evCleared)
		e.transcribe(1)
		c.hears(evCompleted)
		start := time.Now()
		grace, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		over := make(chan time.Duration)
		go func() { r.EndSessions(grace); over <- time.Since(start) }()
		_, _, err := c.Read(context.Background())
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway || time.Since(start) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if took := <-over; took < 30*time.Second || took > 35*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
