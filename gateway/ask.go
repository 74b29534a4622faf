package gateway

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/cost"
)

// ask is what the members of a request object say about its cost. The names are
// those of OpenAI's completions, chat, responses and embeddings, of what other
// providers call the same, and of reranking and scoring.
type ask struct {
	model      string
	badModel   bool
	badName    string   // one that is known in lower case, and written otherwise
	prompt     [][]byte // values of promptNames
	completion int64    // bound on one completion; -1: none given
	choices    int64    // completions per prompt, ≥ 1
}

// askNames are the members that readAsk knows: first those that the prompt is in,
// of which the last few are read as they are written.
var askNames = []string{
	"messages", "prompt", "input", "instructions", "system", "query", "documents", "text_1", "text_2",
	"tools", "functions", "response_format",
	"model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of",
}

// Parts of askNames.
const (
	messagesName = 0 // place of "messages"
	firstWritten = 9 // place of "tools"
	promptNames  = 12
)

// miswritten reports whether a name is a known one but for the case of its
// letters. Some upstreams would take it for that one, others would not, so
// what it costs is not known.
func miswritten(name string) bool {
	return slices.ContainsFunc(askNames, func(known string) bool { return name != known && strings.EqualFold(name, known) })
}

// readAsk reads the members it knows; false if data is not a JSON object. As
// everywhere, of two members with one name the last holds: an upstream that
// sees another model than we do would be limited as the wrong one.
func readAsk(data []byte) (ask, bool) {
	if !json.Valid(data) || firstByte(data) != '{' {
		return ask{}, false
	}
	a := ask{completion: -1, choices: 1, prompt: make([][]byte, promptNames)}
	eachMember(data, func(name string, value []byte) {
		switch name {
		case "model":
			a.badModel = json.Unmarshal(value, &a.model) != nil
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			a.completion = max(a.completion, number(value, -1))
		case "n", "best_of":
			a.choices = max(a.choices, number(value, 1))
		default:
			if i := slices.Index(askNames, name); i >= 0 {
				a.prompt[i] = value
			} else if miswritten(name) {
				a.badName = name
			}
		}
	})
	return a, true
}

// number reads a count in 0..maxEstimate; anything else is missing, and for the
// upstream to complain about.
func number(value []byte, missing int64) int64 {
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil || f < 0 || math.IsNaN(f) {
		return missing
	}
	return int64(min(f, maxEstimate))
}

// query is the question for the estimator. Where nothing bounds the completion and
// the path generates text, the configured default stands in.
func (a ask) query(path string, cfg *config.Config) cost.Query {
	q := cost.Query{Model: a.model, Completion: a.completion, Choices: a.choices, Bytes: cfg.Estimate.Tokenizer == config.TokenizerBytes}
	if a.completion < 0 && a.model != "" && generates(path) {
		q.Completion = cfg.RateLimiting.DefaultCompletionTokens
	}
	w := walk{q: &q}
	for i, value := range a.prompt {
		switch {
		case i >= firstWritten:
			q.Text.Add(value)
		case i == messagesName:
			q.Messages = w.value(value)
		default:
			w.value(value)
		}
	}
	// Which pictures are small may stand in front of or behind them.
	q.Fixed -= min(w.small, w.pictures) * (cost.Picture - cost.SmallPicture)
	return q
}

// silent are the ends of paths whose requests make no model write text. What they
// cost is their input; of speech, too, which is priced by what is spoken.
var silent = map[string]bool{
	"embeddings": true, "moderations": true, "rerank": true, "score": true,
	"speech": true, "transcriptions": true, "translations": true, "count_tokens": true,
}

// generates reports whether requests to a path make the model write text.
func generates(path string) bool {
	return !silent[path[strings.LastIndexByte(path, '/')+1:]]
}

// walk goes through the values that a prompt is in.
type walk struct {
	q               *cost.Query
	pictures, small int64
	owner           string // the member whose object was entered last
	member          string // whose value is read
}

// value adds up the strings of a value, member names aside, and returns how many
// objects its list has. Numbers count as a token each: a prompt may be given as
// token ids.
func (w *walk) value(value []byte) (objects int64) {
	depth := 0
	for i := 0; i < len(value); {
		switch b := value[i]; {
		case b == '"':
			end := stringEnd(value, i)
			text := value[i+1 : end-1]
			if i = end; nextByte(value, end) == ':' {
				w.member = string(text[:min(len(text), maxName)])
			} else {
				w.text(text)
			}
		case b == '-' || b >= '0' && b <= '9':
			w.q.Fixed++
			i = scalarEnd(value, i)
		default:
			i++
			switch b {
			case '{', '[':
				if b == '{' && depth == 1 {
					objects++
				}
				if b == '{' {
					w.owner = w.member
				}
				depth++
			case '}', ']':
				depth--
			}
		}
	}
	return objects
}

// text takes in a string: text of the prompt, unless its place or its beginning says
// that it is a picture, a recording or a file (OpenAI's chat and responses,
// Anthropic's messages), or a word that describes another.
func (w *walk) text(text []byte) {
	kind, isURL := mediaURL(text)
	link := bytes.HasPrefix(text, []byte("https://")) || bytes.HasPrefix(text, []byte("http://"))
	size := int64(len(text))
	switch {
	case w.member == "type":
	case w.member == "detail":
		if string(text) == "low" {
			w.small++
		}
	case kind == "audio", w.member == "data" && w.owner == "input_audio":
		w.q.Fixed += cost.Recording(size)
	case w.member == "file_data", kind == "application":
		w.q.Fixed += cost.File(size)
	case isURL, w.member == "data", link && (w.member == "url" || w.member == "image_url"):
		w.pictures++
		w.q.Fixed += cost.Picture
	default:
		w.q.Text.Add(text)
	}
}

// mediaURL reads the family of a data URL's media type; false if text is none. One
// that is not in base64 is text.
func mediaURL(text []byte) (family string, ok bool) {
	const longest = 128 // of what stands before the data
	head := text[:min(len(text), longest)]
	if !bytes.HasPrefix(head, []byte("data:")) || !bytes.Contains(head, []byte(";base64,")) {
		return "", false
	}
	name, _, _ := bytes.Cut(head[len("data:"):], []byte("/"))
	return string(name), true
}
