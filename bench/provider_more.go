package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Paths of the model API besides completions and embeddings.
const (
	pathResponses = "/v1/responses"
	pathMessages  = "/v1/messages"
	pathSpeech    = "/v1/audio/speech"
)

// LatencyHeld as HeaderLatency holds a request until Release.
const LatencyHeld = "held"

// gate is what held requests wait for.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed by Release; nil: nobody was held since
}

// holding returns what is closed by the next Release.
func (p *Provider) holding() <-chan struct{} {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.gate.open == nil {
		p.gate.open = make(chan struct{})
	}
	return p.gate.open
}

// Release lets all requests that are held be answered.
func (p *Provider) Release() {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.gate.open != nil {
		close(p.gate.open)
		p.gate.open = nil
	}
}

// bytesPerToken is the size of a token of speech.
const bytesPerToken = 64

// readForm takes in a form with a recording in it: its fields are what a JSON object
// would say, its files are counted and thrown away.
func (x *exchange) readForm(body io.Reader, boundary string) error {
	fields := map[string]string{}
	form := multipart.NewReader(body, boundary)
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if part.FileName() != "" {
			n, err := io.Copy(io.Discard, part)
			if x.in.size += n; err != nil {
				return err
			}
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxTenantName))
		if err != nil {
			return err
		}
		fields[part.FormName()] = string(value)
	}
	x.in.Model, x.in.User, x.in.Stream = fields["model"], fields["user"], fields["stream"] == "true"
	return nil
}

// eventOf writes one event of a stream whose events have types.
func (x *exchange) eventOf(kind string, body map[string]any) {
	body["type"] = kind
	data, err := json.Marshal(body)
	if err != nil {
		panic(err) // only strings and numbers
	}
	fmt.Fprintf(x.w, "event: %s\ndata: %s\n\n", kind, data)
}

// typed answers with a stream of such events: a first one, one for each token, and
// last ones, before which the call ends.
func (x *exchange) typed(first func(), token func(), last func()) {
	x.w.Header().Set("Content-Type", "text/event-stream")
	x.w.WriteHeader(http.StatusOK)
	first()
	events := http.NewResponseController(x.w)
	for n := range x.tokens {
		if n > 0 && !x.sleep(x.cfg.TokenGap.Duration(x.rng)) {
			return
		}
		if x.fault == FaultCut && n >= x.tokens/2 {
			x.abort()
		}
		if token(); events.Flush() != nil {
			return
		}
	}
	x.call.End(x.cost())
	last()
}

// respond answers /v1/responses.
func (x *exchange) respond() {
	id, text := fmt.Sprintf("resp_%016x", x.rng.Uint64()), strings.Repeat(word, int(x.tokens))
	body := func(status string) map[string]any {
		return map[string]any{
			"id": id, "object": "response", "status": status, "model": x.in.Model,
			"output": []any{map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": text}}}},
			"usage":  map[string]int64{"input_tokens": x.promptTokens(), "output_tokens": x.tokens, "total_tokens": x.promptTokens() + x.tokens},
		}
	}
	if !x.in.Stream {
		x.finish(body("completed"))
		return
	}
	x.typed(
		func() { x.eventOf("response.created", map[string]any{"response": map[string]any{"id": id}}) },
		func() { x.eventOf("response.output_text.delta", map[string]any{"delta": word}) },
		func() { x.eventOf("response.completed", map[string]any{"response": body("completed")}) },
	)
}

// converse answers /v1/messages.
func (x *exchange) converse() {
	id := fmt.Sprintf("msg_%016x", x.rng.Uint64())
	used := map[string]int64{"input_tokens": x.promptTokens(), "output_tokens": x.tokens}
	if !x.in.Stream {
		x.finish(map[string]any{
			"id": id, "type": "message", "role": "assistant", "model": x.in.Model, "stop_reason": "end_turn", "usage": used,
			"content": []any{map[string]any{"type": "text", "text": strings.Repeat(word, int(x.tokens))}},
		})
		return
	}
	x.typed(
		func() {
			x.eventOf("message_start", map[string]any{"message": map[string]any{"id": id, "usage": map[string]int64{"input_tokens": x.promptTokens()}}})
		},
		func() {
			x.eventOf("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "text_delta", "text": word}})
		},
		func() {
			x.eventOf("message_delta", map[string]any{"delta": map[string]any{"stop_reason": "end_turn"}, "usage": used})
			x.eventOf("message_stop", map[string]any{})
		},
	)
}

// rank answers /v1/rerank and /v1/score: one number for each document or text.
func (x *exchange) rank() {
	var texts []any
	list := x.in.Documents
	if len(list) == 0 {
		list = x.in.Text2
	}
	if json.Unmarshal(list, &texts) != nil {
		texts = []any{nil}
	}
	scores := make([]any, min(len(texts), maxEmbeddings))
	for i := range scores {
		scores[i] = map[string]any{"index": i, "relevance_score": 1 / float64(i+1), "score": 1 / float64(i+1)}
	}
	name := "results"
	if strings.HasSuffix(x.r.URL.Path, "/score") {
		name = "data"
	}
	x.finish(map[string]any{"model": x.in.Model, name: scores, "usage": map[string]int64{"prompt_tokens": x.promptTokens(), "total_tokens": x.promptTokens()}})
}

// transcribe answers /v1/audio/transcriptions and translations.
func (x *exchange) transcribe() {
	text := strings.TrimSpace(strings.Repeat(word, int(x.tokens)))
	if !x.in.Stream {
		x.finish(map[string]any{"text": text})
		return
	}
	x.typed(func() {},
		func() { x.eventOf("transcript.text.delta", map[string]any{"delta": word}) },
		func() { x.eventOf("transcript.text.done", map[string]any{"text": text}) },
	)
}

// speak answers /v1/audio/speech with bytes, in pieces if it is a stream.
func (x *exchange) speak() {
	sound := bytes.Repeat([]byte{0x55}, bytesPerToken)
	x.w.Header().Set("Content-Type", "audio/mpeg")
	if !x.in.Stream {
		x.call.End(x.cost())
		x.w.Header().Set("Content-Length", strconv.Itoa(bytesPerToken*int(x.tokens)))
		x.w.Write(bytes.Repeat(sound, int(x.tokens)))
		return
	}
	pieces := http.NewResponseController(x.w)
	for n := range x.tokens {
		if n > 0 && !x.sleep(x.cfg.TokenGap.Duration(x.rng)) {
			return
		}
		if n == x.tokens-1 {
			x.call.End(x.cost())
		}
		x.w.Write(sound)
		if pieces.Flush() != nil {
			return
		}
	}
}
