package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
)

// question is what the caller of a turn has asked: a chat completion, whose model is
// the turn's business.
type question struct {
	members    map[string]json.RawMessage // without those that steps set
	messages   []json.RawMessage          // at least one
	stream     bool
	prompt     int64 // estimated tokens of messages
	completion int64 // bound on the answer, in tokens, or what stands in for one
}

// classifyTokens bounds the answer of a classify step that does not say: a word.
const classifyTokens = 16

// Mistakes of callers of turns.
var (
	noMessages = failure{status: http.StatusBadRequest, kind: kindInvalid, code: "invalid_messages",
		message: "The field messages has to be a list of messages, at least one."}
	ownTools = failure{status: http.StatusBadRequest, kind: kindInvalid, code: "tools_not_allowed",
		message: "The steps of this path have tools of their own; send none."}
)

// question reads a request to t.
func (g *Gateway) question(x *exchange, r *http.Request, t *turn) (question, *failure) {
	if encoded(r.Header) {
		return question{}, &encodedBody
	}
	data, wrong := readBody(r, x.cfg.Server.MaxBody)
	if wrong != nil {
		return question{}, wrong
	}
	asked, ok := readAsk(data)
	var q question
	if !ok || json.Unmarshal(data, &q.members) != nil {
		return question{}, &badJSON
	}
	if asked.badName != "" {
		f := badName(asked.badName)
		return question{}, &f
	}
	if json.Unmarshal(q.members["messages"], &q.messages) != nil || len(q.messages) == 0 {
		return question{}, &noMessages
	}
	for _, s := range t.steps {
		if len(s.Tools) > 0 && q.members["tools"] != nil {
			return question{}, &ownTools
		}
	}
	_ = json.Unmarshal(q.members["stream"], &q.stream) // anything but true is no
	for _, name := range []string{"model", "messages", "stream"} {
		delete(q.members, name)
	}
	asked.model = t.steps[0].Model
	e := g.opts.Cost.Estimate(asked.query(chatPath, x.cfg))
	q.prompt, q.completion = e.Input, e.Output
	return q, nil
}

// costOf is the estimate of one dispatch of s, in tokens.
func (q question) costOf(s *step) int64 {
	return min(q.promptOf(s)+q.bound(s), maxEstimate)
}

// promptOf is the part of it that is asked. A prompt that is filled in may leave out
// most of the conversation; what was too much is settled.
func (q question) promptOf(s *step) int64 {
	return q.prompt + int64(len(s.System)+len(s.Prompt))/bytesPerToken
}

// bytesPerToken is how many bytes of the configuration's own texts count as a token.
const bytesPerToken = 4

// bound is the most that s may answer, in tokens.
func (q question) bound(s *step) int64 {
	switch {
	case s.MaxTokens > 0:
		return s.MaxTokens
	case s.Kind == config.StepClassify:
		return classifyTokens
	}
	return q.completion
}

// stepBody is the body of one dispatch, in parts.
type stepBody struct {
	members  map[string]json.RawMessage
	messages []json.RawMessage
}

// body is what s asks. Only the last step has the caller's own settings (temperature,
// format, tools): they are about its answer.
func (q question) body(s *step, t *turn, said map[string]string, last bool) stepBody {
	b := stepBody{members: map[string]json.RawMessage{}, messages: q.messages[:len(q.messages):len(q.messages)]}
	if last {
		b.members = maps.Clone(q.members)
		if q.stream {
			b.members["stream"] = json.RawMessage("true")
		}
	}
	b.set("model", s.Model)
	if !last || s.MaxTokens > 0 {
		delete(b.members, "max_completion_tokens")
		b.set("max_tokens", q.bound(s))
	}
	fill := q.filler(said)
	if s.Prompt != "" {
		b.messages = []json.RawMessage{plainMessage("user", fill.Replace(s.Prompt))}
	}
	if s.System != "" {
		b.messages = append([]json.RawMessage{plainMessage("system", fill.Replace(s.System))}, b.messages...)
	}
	if len(s.Tools) > 0 {
		delete(b.members, "n") // there is one conversation with tools
		b.set("tools", t.toolsOf(s))
	}
	return b
}

// set sets a member to v, which JSON can express.
func (b *stepBody) set(name string, v any) { b.members[name] = mustJSON(v) }

// add puts messages behind the others.
func (b *stepBody) add(messages ...json.RawMessage) { b.messages = append(b.messages, messages...) }

// forbidTools makes the model answer.
func (b *stepBody) forbidTools() {
	if b.members["tools"] != nil {
		b.set("tool_choice", "none")
	}
}

// bytes is the body as it is sent.
func (b *stepBody) bytes() []byte {
	all := maps.Clone(b.members)
	all["messages"] = mustJSON(b.messages)
	return mustJSON(all)
}

// filler fills in prompts, in one pass: what callers and models say is never filled
// in again.
func (q question) filler(said map[string]string) *strings.Replacer {
	var all strings.Builder
	var last string
	for _, raw := range q.messages {
		role, text := readMessage(raw)
		fmt.Fprintf(&all, "%s: %s\n", role, text)
		if role == "user" {
			last = text
		}
	}
	pairs := []string{"{{question}}", last, "{{conversation}}", strings.TrimSuffix(all.String(), "\n")}
	for name, text := range said {
		pairs = append(pairs, "{{"+name+"}}", text)
	}
	return strings.NewReplacer(pairs...)
}

// readMessage reads the text of a chat message, and of one in parts their text.
func readMessage(raw json.RawMessage) (role, text string) {
	var m struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	_ = json.Unmarshal(raw, &m) // what is no message says nothing
	if json.Unmarshal(m.Content, &text) == nil {
		return m.Role, text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(m.Content, &parts)
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = p.Text
	}
	return m.Role, strings.TrimSpace(strings.Join(texts, "\n"))
}

// plainMessage is a chat message of plain text.
func plainMessage(role, text string) json.RawMessage {
	return mustJSON(map[string]string{"role": role, "content": text})
}

// mustJSON is for what JSON can always express.
func mustJSON(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return out
}

// jobOf is one dispatch of s as a job, with the body data.
func (q question) jobOf(s *step, candidates []*upstream, data []byte) job {
	return job{
		model: s.Model, tokens: q.costOf(s), prompt: min(q.promptOf(s), maxEstimate),
		body: body{held: data, length: int64(len(data))}, candidates: candidates,
	}
}
