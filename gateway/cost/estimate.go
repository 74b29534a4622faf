package cost

import (
	"math"
	"sync"
)

const (
	// Max bounds an estimate, in tokens, and so sums of estimates.
	Max = 9_000_000_000
	// maxWork ends the counting of a text that is slow to count: its bytes, and
	// tokenWork for each token. A unit takes about 0.1 µs in prose and 0.3 µs at
	// worst; the clock is not asked, so that equal requests have equal estimates.
	maxWork, tokenWork = 3700, 4
	// Around each message of a chat stand messageTokens beside its role and its
	// text, and answerTokens before the answer (OpenAI cookbook, "How to count
	// tokens with tiktoken").
	messageTokens, answerTokens = 3, 3
)

// How an estimate of the input came about.
const (
	Counted = "counted" // with the model's vocabulary, all of it
	Sampled = "sampled" // with the vocabulary, windows of it
	Learned = "learned" // by the bytes per token that the model's answers told
	Assumed = "assumed" // by DefaultBytesPerToken
	None    = "none"    // there is no text
)

// Query is what is known of a request before it is sent.
type Query struct {
	Model      string // empty: none named
	Text       Text   // of the prompt
	Fixed      int64  // tokens of the prompt that are no text: token ids, pictures; ≥ 0
	Messages   int64  // of a chat; 0: it is none
	Completion int64  // bound on one completion in tokens; 0: there is none
	Choices    int64  // completions; below 1 counts as 1
	// Bytes estimates by bytes alone, whatever vocabulary is known.
	Bytes bool
}

// Estimate is what a request will cost in tokens, each part in 0..[Max], and so
// their sum.
type Estimate struct {
	Input, Output int64
	How           string  // Counted, Sampled, Learned, Assumed or None
	Vocabulary    string  // that the text was counted with; empty: none
	BytesPerToken float64 // of the text, above 0; 0 without text
}

// Total is the whole cost.
func (e Estimate) Total() int64 { return e.Input + e.Output }

// Estimator estimates and learns. It is safe for concurrent use. Close it.
type Estimator struct {
	vocabularies bool
	group        sync.WaitGroup // of loads
	loading      sync.Mutex     // one vocabulary at a time

	mu       sync.Mutex
	closed   bool
	counters map[*vocabulary]counter // nil: on its way
	ratios   ratios
}

// New returns an estimator that has learned nothing. Without vocabularies it only
// ever goes by bytes, and there is nothing to close.
func New(vocabularies bool) *Estimator {
	return &Estimator{vocabularies: vocabularies, counters: map[*vocabulary]counter{}, ratios: ratios{models: map[string]*ratio{}}}
}

// Close waits until what is being loaded is loaded. Estimates go on without what
// was not.
func (e *Estimator) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.group.Wait()
}

// Estimate never waits: not for a vocabulary, and not long for a text. It takes
// below 1 ms, whatever the text's length.
func (e *Estimator) Estimate(q Query) Estimate {
	out := Estimate{How: None, Output: output(q.Completion, q.Choices)}
	text, around := int64(0), int64(0)
	if q.Text.bytes > 0 {
		if text, around = e.count(&q, &out); text == 0 {
			text = e.byBytes(&q, &out)
		}
		out.BytesPerToken = float64(q.Text.bytes) / float64(text)
	}
	out.Input = min(min(text, Max)+around+min(max(q.Fixed, 0), Max), Max)
	out.Output = min(out.Output, Max-out.Input)
	return out
}

// output is the bound on all completions.
func output(completion, choices int64) int64 {
	completion, choices = max(completion, 0), max(choices, 1)
	if completion > 0 && choices > Max/completion {
		return Max
	}
	return completion * choices
}

// count counts with the model's vocabulary, 0 where that cannot be done. around are
// the tokens that a chat needs beside its text.
func (e *Estimator) count(q *Query, out *Estimate) (text, around int64) {
	v := vocabularyOf(q.Model)
	if v == nil || q.Bytes {
		return 0, 0
	}
	c := e.counter(v)
	if c == nil {
		return 0, 0
	}
	tokens, seen := 0, 0
	q.Text.windows(func(part []byte) bool {
		n, err := c.Count(string(part))
		if err != nil {
			return false
		}
		tokens, seen = tokens+n, seen+len(part)
		return seen+tokenWork*tokens < maxWork
	})
	if tokens == 0 {
		return 0, 0
	}
	out.How, out.Vocabulary = Counted, v.name
	if text = int64(tokens); int64(seen) < q.Text.bytes {
		out.How = Sampled
		text = int64(math.Ceil(float64(tokens) * float64(q.Text.bytes) / float64(seen)))
	}
	if q.Messages > 0 {
		around = min(q.Messages, Max/(2*messageTokens))*messageTokens + answerTokens
	}
	return text, around
}

// byBytes divides the text's size by what a token of the model is known to have.
func (e *Estimator) byBytes(q *Query, out *Estimate) int64 {
	e.mu.Lock()
	per, learned := e.ratios.of(q.Model)
	e.mu.Unlock()
	if out.How = Assumed; learned {
		out.How = Learned
	}
	return int64(math.Ceil(float64(q.Text.bytes) / per))
}

// counter returns the counter of v, or nil until it is loaded, which begins now if
// it has not.
func (e *Estimator) counter(v *vocabulary) counter {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, begun := e.counters[v]
	if !begun && e.vocabularies && !e.closed {
		e.counters[v] = nil
		e.group.Go(func() { e.load(v) })
	}
	return c
}

// load loads v, after what is being loaded.
func (e *Estimator) load(v *vocabulary) {
	e.loading.Lock()
	defer e.loading.Unlock()
	c := v.load()
	e.mu.Lock()
	e.counters[v] = c
	e.mu.Unlock()
}

// Prepare loads the vocabulary of a model, if it is known, and returns when it is
// there: 30 ms the first time.
func (e *Estimator) Prepare(model string) {
	v := vocabularyOf(model)
	if v == nil || !e.vocabularies {
		return
	}
	e.mu.Lock()
	c := e.counters[v]
	e.mu.Unlock()
	if c == nil {
		e.load(v)
	}
}

// Learn takes in what an answer told: a prompt of so many bytes of text had so many
// tokens. What cannot be, and what is too short to tell anything, is left out.
func (e *Estimator) Learn(model string, bytes, tokens int64) {
	if model == "" || len(model) > maxModelName || bytes < minLearned || tokens <= 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ratios.learn(model, bytes, tokens)
}
