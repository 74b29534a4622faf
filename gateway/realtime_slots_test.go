package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/headway-limiter/headway/limiter"
)

// utteranceOf is one without a slot, as of an upstream that is no agent.
func (s *session) utteranceOf() *utterance {
	u := &utterance{timer: time.NewTimer(time.Hour)}
	if s.all == nil {
		s.all, s.items = map[*utterance]bool{}, map[string]*utterance{}
	}
	s.all[u] = true
	return u
}

// TestFreeAllEnds: a session that ends while its client commits an utterance frees it
// once, and does not look at it again.
func TestFreeAllEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{}
		u := s.utteranceOf()
		s.heard = u
		s.freeAll() // the agent closes, before the client's commit is read
		if s.commitHeard("c") {
			t.Error("what is over was committed")
		}
		late := s.utteranceOf()
		s.doneLocked(late) // its time is up, between its slot and its commit
		s.commitLocked(late, "c")
		if len(s.pending) != 0 {
			t.Errorf("%d utterances that are over wait for a name", len(s.pending))
		}
		s.pending = append(s.pending, late) // if it came about in some other way
		done := make(chan bool)
		go func() { s.freeAll(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("freeAll does not end")
		}
	})
}

// TestFreeAllFreesAll: wherever an utterance stands, and also where nothing points to
// it any more.
func TestFreeAllFreesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{}
		heard, waiting, named, lost := s.utteranceOf(), s.utteranceOf(), s.utteranceOf(), s.utteranceOf()
		s.heard, s.pending, s.items["i"] = heard, []*utterance{waiting}, named
		s.freeAll()
		for i, u := range []*utterance{heard, waiting, named, lost} {
			if !u.over || u.timer.Stop() {
				t.Errorf("utterance %d is not freed", i)
			}
		}
		if len(s.all)+len(s.pending)+len(s.items) != 0 || s.heard != nil {
			t.Errorf("left: %d in all, %d waiting, %d named, heard %v", len(s.all), len(s.pending), len(s.items), s.heard)
		}
	})
}

// TestRealtimeRepeats: an agent that says a thing twice, or leaves out which item it
// is about, holds one slot for it, and none when the transcript is there.
func TestRealtimeRepeats(t *testing.T) {
	started := func(item string) string {
		return fmt.Sprintf(`{"type":"input_audio_buffer.speech_started"%s}`, item)
	}
	committed := func(item string) string {
		return fmt.Sprintf(`{"type":"input_audio_buffer.committed"%s}`, item)
	}
	completed := func(item string) string {
		return fmt.Sprintf(`{"type":"conversation.item.input_audio_transcription.completed"%s}`, item)
	}
	const one, two, none = `,"item_id":"one"`, `,"item_id":"two"`, ""
	for name, c := range map[string]struct {
		says    []string
		commits int // of the client, before
		held    int // before the last event
	}{
		"speech of an item twice":      {says: []string{started(one), started(one), committed(one), completed(one)}, held: 1},
		"speech again under new names": {says: []string{started(one), started(two), committed(two), completed(two)}, held: 1},
		"speech without a name":        {says: []string{started(none), started(none), committed(none), completed(none)}, held: 1},
		"speech while transcribing":    {says: []string{started(one), committed(one), started(one), completed(one)}, held: 1},
		"one name for two commits":     {says: []string{committed(one), committed(one), completed(one)}, commits: 2, held: 1},
		"no name for two commits":      {says: []string{committed(none), committed(none), completed(none)}, commits: 2, held: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &quiet{ears: ears{t: t}}
				r := rigOf(t, strings.Replace(realtimeRig, "slots: 1", "slots: 4", 1), e.serve)
				talk := r.mustTalk()
				go func() {
					for err := error(nil); err == nil; {
						_, _, err = talk.Read(context.Background()) // whoever is not heard is waited for
					}
				}()
				for range c.commits {
					talk.send(commit)
				}
				synctest.Wait()
				for i, event := range c.says {
					if n := r.heldSlots(); i == len(c.says)-1 && n != c.held {
						t.Errorf("%d slots are held before the transcript, want %d", n, c.held)
					}
					e.say(event)
					synctest.Wait()
				}
				if n := r.heldSlots(); n != 0 {
					t.Errorf("%d slots are held after the transcript", n)
				}
			})
		})
	}
}

// quiet is an agent that says what it is told to, and nothing by itself.
type quiet struct{ ears }

func (q *quiet) serve(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"realtime"}})
	if err != nil {
		return
	}
	q.mu.Lock()
	q.conn = conn
	q.mu.Unlock()
	for err == nil {
		_, _, err = conn.Read(context.Background())
	}
}

// TestRealtimeProtocolError: a client that does not speak WebSocket is told so, and no
// slot stays behind.
func TestRealtimeProtocolError(t *testing.T) {
	for name, frame := range map[string][]byte{
		"a frame without a mask": {0x81, 1, 'x'},
		"reserved bits":          {0xf1, 0x80, 0, 0, 0, 0},
		"an unknown opcode":      {0x83, 0x80, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inRealtime(t, func(r *rig, e *ears) {
				req, err := http.NewRequest(http.MethodGet, "http://gateway.test/v1/realtime?intent=transcription", nil)
				if err != nil {
					t.Fatal(err)
				}
				for name, value := range map[string]string{
					"Authorization": "Bearer secret-a", "Connection": "Upgrade", "Upgrade": "websocket",
					"Sec-Websocket-Version": "13", "Sec-Websocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
				} {
					req.Header.Set(name, value)
				}
				resp, err := r.client.Do(req)
				if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
					t.Fatalf("%v, %v", resp, err)
				}
				conn := resp.Body.(io.ReadWriteCloser)
				defer conn.Close()
				if _, err := conn.Write(frame); err != nil {
					t.Fatal(err)
				}
				head := make([]byte, 4) // a close frame: opcode, length, code
				if _, err := io.ReadFull(conn, head); err != nil || head[0] != 0x88 {
					t.Fatalf("read %x, %v", head, err)
				}
				if code := binary.BigEndian.Uint16(head[2:]); code != uint16(websocket.StatusProtocolError) {
					t.Errorf("told %d, want %d", code, websocket.StatusProtocolError)
				}
				_ = conn.Close()
				time.Sleep(goodbye)
			})
		})
	}
}

// TestRealtimeLimitsOfBackends: a session counts in the limits of its upstream, and
// goes to another where they are used up; one that reaches nobody is given back.
func TestRealtimeLimitsOfBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &ears{t: t}
		limits := "  per_backend: {overrides: {ears: {requests: {limit: 1, per: 100000h}}, more: {requests: {limit: 1, per: 100000h}}}}\n"
		more := strings.NewReplacer("credential: upstream-secret}]", `credential: upstream-secret}, {name: more, url: "http://more.test"}]`,
			"upstream: ears}", "upstreams: [ears, more]}", "max_in_flight_requests: 2", "max_in_flight_requests: 9").Replace(realtimeRig)
		r := rigOf(t, more+limits, e.ServeHTTP)
		key := http.Header{"Authorization": {"Bearer secret-a"}}
		r.mustTalk()
		r.dead.Store("more.test:80", true)
		if _, resp, err := r.talk("/v1/realtime?intent=transcription", key); err == nil || resp.StatusCode != http.StatusBadGateway {
			t.Errorf("beside one that is used up and one that is down: %v, %v", resp, err)
		}
		r.dead.Delete("more.test:80")
		r.mustTalk()
		_, resp, err := r.talk("/v1/realtime?intent=transcription", key)
		if err == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("where both are used up: %v, %v", resp, err)
		}
		for _, name := range []string{"ears", "more"} {
			if n := r.left(limiter.Backend, limiter.Requests, name, 1); n != 0 {
				t.Errorf("%d requests are left of %s", n, name)
			}
		}
	})
}
