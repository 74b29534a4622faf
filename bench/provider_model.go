package bench

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
)

const (
	// word is the text of one token.
	word = "word "
	// defaultDimensions and maxDimensions are the lengths of an embedding.
	defaultDimensions = 8
	maxDimensions     = 4096
	// maxEmbeddings bounds the inputs of one request.
	maxEmbeddings = 2048
)

// usage is the provider's account of one exchange.
type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

// completion is an answer, or one event of a streamed one, of both paths.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	// Usage is null in the events of a stream that ends with one, and missing
	// in those of a stream that does not.
	Usage json.RawMessage `json:"usage,omitempty"`
}

type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"` // whole chat answers
	Delta        *message `json:"delta,omitempty"`   // chat events
	Text         *string  `json:"text,omitempty"`    // the older path
	FinishReason *string  `json:"finish_reason"`
}

type message struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

func (x *exchange) chat() bool { return x.r.URL.Path == "/v1/chat/completions" }

func (x *exchange) usage() json.RawMessage {
	u := usage{Prompt: x.promptTokens(), Completion: x.tokens}
	u.Total = u.Prompt + u.Completion
	data, err := json.Marshal(u)
	if err != nil {
		panic(err) // three integers
	}
	return data
}

// finishReason is "length" when the request's own bound cut the answer.
func (x *exchange) finishReason() *string {
	reason := "stop"
	if bound := max(x.in.MaxTokens, x.in.MaxCompletionTokens); bound > 0 && x.tokens >= bound {
		reason = "length"
	}
	return &reason
}

// envelope is what every event and answer of this exchange begins with.
func (x *exchange) envelope(object string) completion {
	kind, id := "text_completion", "cmpl-"
	if x.chat() {
		kind, id = object, "chatcmpl-"
	}
	return completion{
		ID: id + fmt.Sprintf("%016x", x.rng.Uint64()), Object: kind,
		Created: time.Now().Unix(), Model: x.in.Model, Choices: []choice{},
	}
}

// complete answers both completion paths.
func (x *exchange) complete() {
	if x.in.Stream {
		x.stream()
		return
	}
	c := x.envelope("chat.completion")
	text := strings.TrimSpace(strings.Repeat(word, int(x.tokens)))
	ch := choice{FinishReason: x.finishReason()}
	if x.chat() {
		ch.Message = &message{Role: "assistant", Content: &text}
	} else {
		ch.Text = &text
	}
	c.Choices, c.Usage = []choice{ch}, x.usage()
	x.finish(c)
}

// stream answers with one event per token, each flushed by itself.
func (x *exchange) stream() {
	x.w.Header().Set("Content-Type", "text/event-stream")
	x.w.Header().Set("Cache-Control", "no-cache")
	x.w.WriteHeader(http.StatusOK)
	events := http.NewResponseController(x.w)
	c := x.envelope("chat.completion.chunk")
	if x.in.StreamOptions.IncludeUsage {
		c.Usage = json.RawMessage("null")
	}
	role, empty := "assistant", ""
	if x.chat() {
		x.event(c, choice{Delta: &message{Role: role, Content: &empty}})
	}
	for n := range x.tokens {
		if n > 0 && !x.sleep(x.cfg.TokenGap.Duration(x.rng)) {
			return
		}
		if x.fault == FaultCut && n >= x.tokens/2 {
			x.abort()
		}
		x.event(c, x.piece(word, nil))
		if events.Flush() != nil {
			return
		}
	}
	x.endStream(c)
}

// endStream writes the last events. The call ends before the one that clients
// wait for.
func (x *exchange) endStream(c completion) {
	x.event(c, x.piece("", x.finishReason()))
	if x.in.StreamOptions.IncludeUsage {
		c.Usage = x.usage()
		x.event(c)
	}
	x.call.End(x.cost())
	fmt.Fprint(x.w, "data: [DONE]\n\n")
}

// piece is the choice of one event; an empty text is left out of a chat event.
func (x *exchange) piece(text string, finish *string) choice {
	if !x.chat() {
		return choice{Text: &text, FinishReason: finish}
	}
	delta := &message{}
	if text != "" {
		delta.Content = &text
	}
	return choice{Delta: delta, FinishReason: finish}
}

// event writes one event. Errors show at the next flush.
func (x *exchange) event(c completion, choices ...choice) {
	c.Choices = append(c.Choices, choices...)
	data, err := json.Marshal(c)
	if err != nil {
		panic(err) // only strings and numbers
	}
	fmt.Fprintf(x.w, "data: %s\n\n", data)
}

// embed answers with one vector per input, the same for every text.
func (x *exchange) embed() {
	dims := x.in.Dimensions
	if dims <= 0 || dims > maxDimensions {
		dims = defaultDimensions
	}
	vector := embedding(dims, x.in.EncodingFormat == "base64")
	data := make([]any, countInputs(x.in.Input))
	for i := range data {
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": vector}
	}
	x.finish(map[string]any{
		"object": "list", "data": data, "model": x.in.Model,
		"usage": map[string]int64{"prompt_tokens": x.promptTokens(), "total_tokens": x.promptTokens()},
	})
}

// embedding is a vector of length 1 in either of the two encodings.
func embedding(dims int, packed bool) any {
	v := make([]float32, dims)
	for i := range v {
		v[i] = float32(1 / math.Sqrt(float64(dims)))
	}
	if !packed {
		return v
	}
	raw := make([]byte, 0, 4*dims)
	for _, f := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// countInputs is how many texts input holds: one text or one list of token
// numbers is a single input, a list of either is one input each.
func countInputs(input json.RawMessage) int {
	var list []json.RawMessage
	if json.Unmarshal(input, &list) != nil || len(list) == 0 {
		return 1
	}
	if c := list[0][0]; c != '"' && c != '[' {
		return 1
	}
	return min(len(list), maxEmbeddings)
}

// models lists all models, or describes the one of that name.
func (x *exchange) models(name string) {
	describe := func(id string) map[string]any {
		return map[string]any{"id": id, "object": "model", "created": 0, "owned_by": "simulated"}
	}
	if name != "" {
		x.finish(describe(name))
		return
	}
	list := []any{}
	for _, id := range x.cfg.Models {
		list = append(list, describe(id))
	}
	x.finish(map[string]any{"object": "list", "data": list})
}
