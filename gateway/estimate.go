package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/cost"
)

const (
	// maxEstimate bounds an estimate, and so sums of estimates.
	maxEstimate = cost.Max
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
	guess  guess  // how that was found
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
	form   *formScanner // reads along with stream; nil: it is no form
}

// estimate reads what a request will cost. For upstreams of kind openai the
// body is buffered and has to be a JSON object, unless its type says that it
// is media or a form with files; other bodies are not looked at.
func (g *Gateway) estimate(x *exchange, r *http.Request, rt *route) (job, *failure) {
	plain := rt.kind != config.KindOpenAI || r.ContentLength == 0
	media := !plain && opaque(r.Header)
	if media {
		object, wrong := startsObject(r)
		if wrong != nil {
			return job{}, wrong
		}
		media = !object
	}
	if s := newFormScanner(r.Header); media && s != nil {
		return g.form(x, r, rt, s)
	}
	if plain || media {
		b, wrong := passing(r, x.cfg.Server.MaxUpload)
		return job{body: b, candidates: rt.candidates}, wrong
	}
	if encoded(r.Header) {
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
	q := asked.query(r.URL.Path, x.cfg)
	e := g.opts.Cost.Estimate(q)
	j.model, j.tokens, j.prompt = asked.model, e.Total(), e.Input
	j.guess = guess{how: e.How, text: q.Text.Bytes(), alone: q.Fixed == 0}
	return j, nil
}

// encoded reports whether a body cannot be read as it is.
func encoded(h http.Header) bool {
	e := h.Get("Content-Encoding")
	return e != "" && !strings.EqualFold(e, "identity")
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
func startsObject(r *http.Request) (bool, *failure) {
	buffered := bufio.NewReaderSize(r.Body, sniffed)
	r.Body = struct {
		io.Reader
		io.Closer
	}{buffered, r.Body}
	for n := 1; n <= sniffed; n++ {
		head, err := buffered.Peek(n)
		switch {
		case err == io.EOF:
			return n > 1, nil
		case err != nil:
			return false, unread(err)
		}
		switch head[n-1] {
		case ' ', '\t', '\r', '\n':
		case '{', 0xEF: // 0xEF begins a byte order mark
			return true, nil
		default:
			return false, nil
		}
	}
	return true, nil
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
	case err != nil:
		return nil, unread(err)
	case int64(buf.Len()) > int64(most):
		f := bodyTooLarge(most)
		return nil, &f
	}
	return buf.Bytes(), nil
}

// unread words an error of reading a body.
func unread(err error) *failure {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &slowBody
	}
	return &badBody
}
