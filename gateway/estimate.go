package gateway

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
)

const (
	// bytesPerToken is how many bytes of text make a token of prompt: about 4
	// in English, and about as many in scripts of three bytes a letter and
	// more than a token a letter's half. What it is wrong by is settled from
	// the provider's usage.
	bytesPerToken = 4
	// mediaTokens stands for a picture or a recording inside a prompt, whose
	// bytes say nothing about its cost.
	mediaTokens = 1000
	// maxEstimate bounds an estimate, and so sums of estimates.
	maxEstimate = 9_000_000_000
	// maxPromise is the most memory given for a Content-Length before its bytes
	// are there.
	maxPromise = 1 << 20
	// prefetch is the largest body of an opaque kind that is read before
	// admission. While a body is unread, net/http does not notice that the
	// client left; with it read, a waiter that leaves frees its place.
	prefetch = 64 << 10
)

// job is what a request asks of an upstream.
type job struct {
	model  string // empty: none named
	tokens int64  // estimated cost, ≥ 0
	prompt int64  // the part of it that is known already
	body   body
	// candidates are the upstreams that may take it, best first; never empty.
	candidates []*upstream
}

// body is a request body: held in memory, or still to be streamed.
type body struct {
	held   []byte
	stream io.Reader // nil: held is all there is
	length int64     // -1: unknown
	most   config.Size
}

// estimate reads what a request will cost. For upstreams of kind openai the
// body is buffered and has to be a JSON object, unless its type says that it
// is media or a form with files; other bodies are not looked at.
func (g *Gateway) estimate(x *exchange, r *http.Request, rt *route) (job, *failure) {
	if rt.kind != config.KindOpenAI || r.ContentLength == 0 || (opaque(r.Header) && !startsObject(r)) {
		b, wrong := passing(r, x.cfg.Server.MaxUpload)
		return job{body: b, candidates: rt.candidates}, wrong
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return job{}, &encodedBody
	}
	data, wrong := readBody(r, x.cfg.Server.MaxBody)
	if wrong != nil {
		return job{}, wrong
	}
	j := job{body: body{held: data, length: int64(len(data))}, candidates: rt.candidates}
	if len(data) == 0 {
		return j, nil
	}
	asked, ok := readAsk(data)
	switch {
	case !ok:
		return job{}, &badJSON
	case asked.badModel:
		return job{}, &badModel
	case asked.badName != "":
		f := badName(asked.badName)
		return job{}, &f
	}
	if j.candidates = rt.serving(asked.model); len(j.candidates) == 0 {
		f := unknownModel(asked.model)
		return job{}, &f
	}
	j.model, j.tokens = asked.model, asked.cost(r.URL.Path, x.cfg.RateLimiting.DefaultCompletionTokens)
	j.prompt = min(asked.prompt.tokens(), j.tokens)
	return j, nil
}

// passing prepares a body that is not looked at: streamed, but for small ones.
// A body of unknown length is bounded while it streams (see upload).
func passing(r *http.Request, most config.Size) (body, *failure) {
	switch {
	case r.ContentLength == 0:
		return body{}, nil
	case r.ContentLength > int64(most):
		f := bodyTooLarge(most)
		return body{}, &f
	case r.ContentLength > 0 && r.ContentLength <= prefetch:
		data, wrong := readBody(r, most)
		return body{held: data, length: int64(len(data))}, wrong
	}
	return body{stream: r.Body, length: r.ContentLength, most: most}, nil
}

// opaque reports whether a body's type says that it is not JSON. Everything
// else is read as JSON, whatever it claims: a body that an upstream would
// take as JSON must not pass unread.
func opaque(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	family, _, _ := strings.Cut(kind, "/")
	switch family {
	case "multipart", "audio", "image", "video":
		return true
	}
	return kind == "application/octet-stream"
}

// sniffed is how much white space may come before a body's first byte.
const sniffed = 4096

// startsObject looks whether a body begins like a JSON object, whatever its
// type says: an upstream that goes by the bytes must not be reached past the
// limits. A body of nothing but white space so far counts, too.
func startsObject(r *http.Request) bool {
	buffered := bufio.NewReaderSize(r.Body, sniffed)
	r.Body = struct {
		io.Reader
		io.Closer
	}{buffered, r.Body}
	for n := 1; n <= sniffed; n++ {
		head, err := buffered.Peek(n)
		if err != nil {
			return n > 1
		}
		switch head[n-1] {
		case ' ', '\t', '\r', '\n':
		case '{', 0xEF: // 0xEF begins a byte order mark
			return true
		default:
			return false
		}
	}
	return true
}

// readBody reads a whole body of at most the given size. One that announces
// more is refused before a byte of it is read; the read deadline that observe
// set ends one that never comes.
func readBody(r *http.Request, most config.Size) ([]byte, *failure) {
	if r.ContentLength > int64(most) {
		f := bodyTooLarge(most)
		return nil, &f
	}
	var buf bytes.Buffer
	// Room for what is announced, but no more than a claim alone is worth.
	buf.Grow(int(min(max(r.ContentLength, 0), maxPromise)) + bytes.MinRead)
	_, err := buf.ReadFrom(io.LimitReader(r.Body, int64(most)+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &slowBody
	case err != nil:
		return nil, &badBody
	case int64(buf.Len()) > int64(most):
		f := bodyTooLarge(most)
		return nil, &f
	}
	return buf.Bytes(), nil
}

// ask is what the members of a request object say about its cost. The names are
// those of OpenAI's completions, chat, responses and embeddings, and of what
// other providers call the same.
type ask struct {
	model      string
	badModel   bool
	badName    string // one that is known in lower case, and written otherwise
	prompt     textCost
	completion int64 // bound on one completion; -1: none given
	choices    int64 // completions per prompt, ≥ 1
}

// askNames are the members that readAsk knows.
var askNames = []string{
	"model", "messages", "prompt", "input", "instructions", "system", "tools", "functions", "response_format",
	"max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of",
}

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
	a := ask{completion: -1, choices: 1}
	prompts := map[string]textCost{}
	eachMember(data, func(name string, value []byte) {
		switch name {
		case "model":
			a.badModel = json.Unmarshal(value, &a.model) != nil
		case "messages", "prompt", "input", "instructions", "system":
			prompts[name] = costOfText(value)
		case "tools", "functions", "response_format":
			prompts[name] = textCost{bytes: int64(len(value))}
		case "max_tokens", "max_completion_tokens", "max_output_tokens":
			a.completion = max(a.completion, number(value, -1))
		case "n", "best_of":
			a.choices = max(a.choices, number(value, 1))
		default:
			if miswritten(name) {
				a.badName = name
			}
		}
	})
	for _, p := range prompts {
		a.prompt = a.prompt.add(p)
	}
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

// cost is the estimate in tokens: the prompt once, and the bound on the
// completion for each choice. Where nothing bounds it and the path generates
// text, the configured default stands in.
func (a ask) cost(path string, defaultCompletion int64) int64 {
	completion := a.completion
	if completion < 0 {
		completion = defaultCompletion
		if a.model == "" || !generates(path) {
			completion = 0
		}
	}
	return min(a.prompt.tokens()+min(completion*min(a.choices, maxEstimate/max(completion, 1)+1), maxEstimate), maxEstimate)
}

// generates reports whether requests to a path make the model write text.
func generates(path string) bool {
	last := path[strings.LastIndexByte(path, '/')+1:]
	return last != "embeddings" && last != "moderations" && last != "rerank"
}

// textCost is what the text inside a JSON value amounts to.
type textCost struct{ bytes, units int64 }

func (c textCost) add(o textCost) textCost {
	return textCost{c.bytes + o.bytes, c.units + o.units}
}

// tokens rounds up: a prompt of one letter costs something.
func (c textCost) tokens() int64 {
	return (c.bytes+bytesPerToken-1)/bytesPerToken + c.units
}

// costOfText adds up the strings of a value, member names aside. Numbers count
// as a token each (a prompt may be given as token ids), and embedded media
// (data URLs, and members called data or file_data) as mediaTokens. Escapes
// count as they are written: a few bytes too many.
func costOfText(value []byte) textCost {
	var c textCost
	var member string
	for i := 0; i < len(value); {
		switch b := value[i]; {
		case b == '"':
			end := stringEnd(value, i)
			text := value[i+1 : end-1]
			i = end
			switch {
			case nextByte(value, end) == ':':
				member = string(text)
			case bytes.HasPrefix(text, []byte("data:")), member == "data", member == "file_data":
				c.units += mediaTokens
			default:
				c.bytes += int64(len(text))
			}
		case b == '-' || b >= '0' && b <= '9':
			c.units++
			i = scalarEnd(value, i)
		default:
			i++
		}
	}
	return c
}
