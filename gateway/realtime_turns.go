package gateway

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headway-limiter/headway/gateway/agents"
)

// Events that matter here, of those that pass.
const (
	evAppend    = "input_audio_buffer.append"
	evCommit    = "input_audio_buffer.commit"
	evClear     = "input_audio_buffer.clear"
	evCleared   = "input_audio_buffer.cleared"
	evSpeech    = "input_audio_buffer.speech_started"
	evCommitted = "input_audio_buffer.committed"
	evCompleted = "conversation.item.input_audio_transcription.completed"
	evFailed    = "conversation.item.input_audio_transcription.failed"
	evError     = "error"
)

// clientEvents are those that a session of transcription needs. Any other might make
// the agent work without a slot.
var clientEvents = map[string]bool{
	evAppend: true, evCommit: true, evClear: true, "session.update": true, "transcription_session.update": true,
}

// deafness is for how long audio is dropped after an utterance that the agent had
// begun to hear was refused: else the rest of it would be the next one at once.
const deafness = time.Second

// utterance is one turn of speech, from when it needs the agent until its transcript
// is there.
type utterance struct {
	slot  *agents.Slot // nil: the upstream is no agent
	event string       // id of the event that committed it; empty: the agent heard its end
	timer *time.Timer  // frees it if nothing is heard of it any more
	named bool         // the agent has committed it
	over  bool
}

// utterances are those of one session.
type utterances struct {
	taking sync.Mutex // held while a slot is asked for, so that order is that of events

	mu      sync.Mutex
	all     map[*utterance]bool   // that hold a slot: none is over
	heard   *utterance            // that the agent has begun to hear, not committed yet
	pending []*utterance          // committed, and not named by the agent yet, in order
	items   map[string]*utterance // named, by item
	refused string                // the item that was dropped last
	deaf    time.Time             // until when audio is dropped
	used    int64                 // tokens, as the agent tells
}

// realtimeEvent is what is read of an event in either direction.
type realtimeEvent struct {
	kind  string
	id    string // event_id
	item  string
	usage json.RawMessage
	error struct{ code, event string }
}

// readEvent reads an event; false if it is none, or says twice what it is.
func readEvent(data []byte) (e realtimeEvent, ok bool) {
	if !json.Valid(data) || firstByte(data) != '{' {
		return e, false
	}
	kinds := 0
	eachMember(data, func(name string, value []byte) {
		switch name {
		case "type":
			kinds++
			_ = json.Unmarshal(value, &e.kind)
		case "event_id":
			_ = json.Unmarshal(value, &e.id)
		case "item_id":
			_ = json.Unmarshal(value, &e.item)
		case "usage":
			e.usage = value
		case "error":
			var body struct {
				Code    string `json:"code"`
				EventID string `json:"event_id"`
			}
			_ = json.Unmarshal(value, &body)
			e.error.code, e.error.event = body.Code, body.EventID
		}
	})
	return e, kinds == 1
}

// fromClient passes an event on to the agent, unless it is a turn that gets no slot.
func (s *session) fromClient(data []byte) error {
	e, ok := readEvent(data)
	switch {
	case !ok || !clientEvents[e.kind]:
		return s.tell("unsupported_event", kindInvalid, "This event is not part of a transcription session.", e.id)
	case e.kind == evAppend && s.isDeaf():
		return nil
	case e.kind != evCommit:
		return s.send(s.agent, data)
	}
	if !s.commitHeard(e.id) {
		u, code := s.take()
		if u == nil {
			return s.refuse(code, e.id)
		}
		s.mu.Lock()
		s.commitLocked(u, e.id)
		s.mu.Unlock()
	}
	return s.send(s.agent, data)
}

// fromAgent passes an event on to the client, and follows the turns by it. A slot is
// free before the client has the transcript.
func (s *session) fromAgent(data []byte) error {
	e, _ := readEvent(data)
	if e.kind == evSpeech {
		if s.hears(e.item) {
			return s.send(s.client, data)
		}
		u, code := s.take()
		if u == nil {
			s.mu.Lock()
			s.refused, s.deaf = e.item, time.Now().Add(deafness)
			s.mu.Unlock()
			return s.refuse(code, "")
		}
		s.mu.Lock()
		if !u.over {
			s.items[e.item], s.heard = u, u
		}
		s.mu.Unlock()
	} else if s.follow(e) {
		return nil
	}
	return s.send(s.client, data)
}

// hears reports whether speech that begins belongs to an utterance that has a slot:
// the agent tells of it again, under the same name or a new one. There is one buffer
// of audio, so one utterance at a time is being heard.
func (s *session) hears(item string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.items[item] != nil:
		return true
	case s.heard != nil:
		s.items[item] = s.heard
		return true
	}
	return false
}

// follow notes what an event of the agent means for the turns. True: it is about one
// that was refused, and not for the client.
func (s *session) follow(e realtimeEvent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.item != "" && e.item == s.refused {
		return true
	}
	switch e.kind {
	case evCommitted:
		s.nameLocked(e.item)
	case evCompleted, evFailed:
		s.doneLocked(s.items[e.item])
		var u usage
		u.merge(e.usage)
		if n, told := u.total(); told {
			s.used += n
		}
	case evCleared:
		s.doneLocked(s.heard)
	case evError:
		if len(s.pending) > 0 && (e.error.event == s.pending[0].event && e.error.event != "" || e.error.code == "input_audio_buffer_commit_empty") {
			s.doneLocked(s.pending[0])
		}
	}
	return false
}

// take asks for a slot, without waiting. Nil: there is none, for the reason.
func (s *session) take() (*utterance, string) {
	s.taking.Lock()
	defer s.taking.Unlock()
	if s.g.draining.Load() {
		return nil, "draining"
	}
	u := &utterance{}
	if s.up.IsAgent() {
		slot, _, err := s.g.slot(s.ctx, s.x, []*upstream{s.up}, false)
		if err != nil {
			var full *agents.Saturated
			if !errors.As(err, &full) {
				s.g.log.Warn("gateway: no slot for a realtime turn", "request", s.x.id, "upstream", s.up.Name, "error", err)
			}
			return nil, string(agents.ReasonCapacity)
		}
		u.slot = slot
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*utterance]bool{}
	}
	s.all[u] = true
	u.timer = time.AfterFunc(s.x.cfg.Server.Timeouts.Total, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.doneLocked(u)
	})
	return u, ""
}

// commitHeard notes that the client ends the utterance that the agent has begun to
// hear, with its event. False: there is none.
func (s *session) commitHeard(event string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.heard
	if u == nil {
		return false
	}
	s.heard = nil
	s.commitLocked(u, event)
	return true
}

// commitLocked notes that u waits for the agent's name, unless it is over: what is
// over is nowhere but here, and nothing would end it.
func (s *session) commitLocked(u *utterance, event string) {
	if u == nil || u.over {
		return
	}
	u.event = event
	s.pending = append(s.pending, u)
}

// nameLocked notes that the agent has committed an item: the utterance of that name,
// or the one that has waited longest for one. Where an agent commits a name again, or
// gives none, what waits is part of what has the name, and one slot is enough.
func (s *session) nameLocked(item string) {
	u := s.items[item]
	switch {
	case u == nil && len(s.pending) > 0:
		u = s.pending[0]
		s.items[item] = u
	case u != nil && u.named && len(s.pending) > 0:
		s.doneLocked(s.pending[0])
	}
	if u != nil {
		u.named = true
		s.committedLocked(u)
	}
}

// doneLocked ends an utterance: its slot is free.
func (s *session) doneLocked(u *utterance) {
	if u == nil || u.over {
		return
	}
	u.over = true
	delete(s.all, u)
	u.timer.Stop()
	if u.slot != nil {
		u.slot.Free(false)
	}
	s.committedLocked(u)
	for item, o := range s.items {
		if o == u {
			delete(s.items, item)
		}
	}
}

// committedLocked notes that u is neither heard any more nor waits for a name.
func (s *session) committedLocked(u *utterance) {
	if s.heard == u {
		s.heard = nil
	}
	s.pending = slices.DeleteFunc(s.pending, func(p *utterance) bool { return p == u })
}

// freeAll ends all utterances.
func (s *session) freeAll() {
	s.taking.Lock() // one that is being taken is there by then, or not at all
	defer s.taking.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for u := range s.all {
		s.doneLocked(u)
	}
}

func (s *session) isDeaf() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.deaf)
}

// refuse drops an utterance: the client is told, with the event that it answers, if
// there is one, and what the agent has of it is cleared.
func (s *session) refuse(code, event string) error {
	message, kind := "The agent is busy, and this utterance was dropped. Go on with the next.", kindLimit
	if code == "draining" {
		message, kind = leaving.message, kindServer
	}
	if err := s.tell(code, kind, message, event); err != nil {
		return err
	}
	return s.send(s.agent, []byte(`{"type":"`+evClear+`"}`))
}

// tell sends an error event, after which the session goes on.
func (s *session) tell(code, kind, message, event string) error {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	body := map[string]any{"type": kind, "code": code, "message": message, "param": nil, "event_id": nil}
	if event != "" {
		body["event_id"] = event
	}
	return s.send(s.client, mustJSON(map[string]any{"type": "error", "event_id": "event_" + hex.EncodeToString(id[:]), "error": body}))
}
