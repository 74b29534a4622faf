package gateway

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"net/textproto"

	"github.com/headway-limiter/headway/gateway/cost"
)

// A form with a recording in it may be hundreds of megabytes and is never held. Its
// small fields are looked for in its first lookAhead bytes, and no more is read of a
// request that waits. SDKs write fields in the order in which the application gives
// them, so a file may come before the field that names the model. A model that is
// not named by then is treated as not named: the request is in no per_model limit.
// But the form is read on while it passes by, and one that comes to name a model
// that its upstream does not take is cut off before its end.

const (
	// lookAhead is how much of a form is read before it may start, in bytes.
	lookAhead = 64 << 10
	// maxFormModel is longer than any model's name, in bytes.
	maxFormModel = 256
	// maxPartHeader bounds the header of a part, in bytes; a form with a longer one is
	// refused.
	maxPartHeader = 4 << 10
)

// form prepares a multipart body of an upstream of kind openai: what it costs is told
// by its size, for it is mostly a recording. Where the size is not known, it counts
// as one of lookAhead.
func (g *Gateway) form(x *exchange, r *http.Request, rt *route, s *formScanner) (job, *failure) {
	if encoded(r.Header) {
		return job{}, &encodedBody
	}
	b, wrong := passing(r, x.cfg.Server.MaxUpload)
	if wrong != nil {
		return job{}, wrong
	}
	if b.stream == nil {
		s.scan(b.held)
	} else if b, wrong = peek(b, s); wrong != nil {
		return job{}, wrong
	}
	if s.bad || !s.begun {
		return job{}, &badForm
	}
	j := job{model: s.model, body: b, candidates: rt.serving(s.model)}
	if len(j.candidates) == 0 {
		f := unknownModel(s.model)
		return job{}, &f
	}
	size := b.length
	if size < 0 {
		size = lookAhead
	}
	j.tokens = cost.Recording(size)
	j.prompt = j.tokens
	return j, nil
}

// peek reads b's stream until the model is named or lookAhead is read, and puts what
// was read back in front.
func peek(b body, s *formScanner) (body, *failure) {
	head := make([]byte, 0, sip)
	for len(head) < lookAhead && !s.settled() {
		if len(head) == cap(head) {
			head = append(make([]byte, 0, min(2*cap(head), lookAhead)), head...)
		}
		n, err := b.stream.Read(head[len(head):cap(head)])
		s.scan(head[len(head) : len(head)+n])
		head = head[:len(head)+n]
		if err == io.EOF {
			return body{held: head, length: int64(len(head))}, nil
		}
		if err != nil {
			return b, unread(err)
		}
	}
	b.stream, b.form = io.MultiReader(bytes.NewReader(head), &formReader{b.stream, s}), s
	return b, nil
}

// formScanner finds the field "model" of a multipart form in bytes that come in
// pieces. It keeps the header of one part and a name, however large the parts are.
//
// Parsers differ in what they make of a form that is not quite one (lines that end in
// bare LF, folded headers, text before the first delimiter). A model that only the
// upstream's sees would be in no limit, so all that is bad.
type formScanner struct {
	model string // empty: none named yet
	bad   bool   // two models are named, or one too long to be any, or parsers may differ
	begun bool   // there was a delimiter

	up *upstream // that the form is on its way to; nil: to none yet

	delimiter []byte // CR LF, two dashes, boundary
	matched   int    // bytes of it that the data just read ends in
	state     formState
	line      []byte // header of the part so far, or its value
	wanted    bool   // the part is the field
}

type formState uint8

const (
	inPart    formState = iota // inside a part's data, or before the first
	atBorder                   // behind a delimiter, before the end of its line
	inHeader                   // inside a part's header
	formEnded                  // behind the last delimiter
)

// newFormScanner returns a scanner for a form, nil where h says that it is none.
func newFormScanner(h http.Header) *formScanner {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil
	}
	// The first delimiter needs no line end in front.
	return &formScanner{delimiter: []byte("\r\n--" + params["boundary"]), matched: 2}
}

// settled reports whether reading on before the start would find nothing more.
func (s *formScanner) settled() bool { return s.model != "" || s.bad || s.state == formEnded }

// scan reads the next piece.
func (s *formScanner) scan(p []byte) {
	for i := 0; i < len(p); i++ {
		if s.state == inPart && s.matched == 0 && !s.wanted {
			// Most of a form is a file: go to where its end may be.
			skip := bytes.IndexByte(p[i:], '\r')
			if skip < 0 {
				return
			}
			i += skip
		}
		s.next(p[i])
	}
}

func (s *formScanner) next(b byte) {
	switch s.state {
	case inPart:
		s.data(b)
	case atBorder:
		s.border(b)
	case inHeader:
		// Lines end in CR LF, and have no other of either.
		after := len(s.line) > 0 && s.line[len(s.line)-1] == '\r'
		s.bad = s.bad || after != (b == '\n')
		switch s.line = append(s.line, b); {
		case bytes.HasSuffix(s.line, []byte("\r\n\r\n")), string(s.line) == "\r\n":
			s.begin(s.line)
		case len(s.line) > maxPartHeader:
			s.bad = true
			s.begin(nil)
		}
	}
}

// border reads a byte of the rest of a delimiter's line: two dashes if it is the last
// one, and blanks.
func (s *formScanner) border(b byte) {
	if s.line = append(s.line, b); b != '\n' && len(s.line) <= maxPartHeader {
		return
	}
	rest, whole := bytes.CutSuffix(s.line, []byte("\r\n"))
	rest, last := bytes.CutPrefix(rest, []byte("--"))
	s.bad = s.bad || !whole || len(bytes.Trim(rest, " \t")) > 0
	s.state, s.line = inHeader, s.line[:0]
	if last {
		s.state = formEnded
	}
}

// begin starts the data of a part with a header. The end of that is also the line end
// in front of a delimiter, if there is no data.
func (s *formScanner) begin(header []byte) {
	name, ok := fieldName(header)
	s.state, s.matched = inPart, 2
	s.bad = s.bad || !ok
	s.wanted = name == "model"
	s.line = s.line[:0]
}

// data reads a byte of a part. A delimiter begins with a CR and has no other, so a
// match that fails begins anew with the byte at hand or not at all.
func (s *formScanner) data(b byte) {
	if s.wanted && len(s.line) <= maxFormModel+len(s.delimiter) {
		s.line = append(s.line, b)
	}
	if b != s.delimiter[s.matched] {
		s.matched = 0
	}
	if b == s.delimiter[s.matched] {
		s.matched++
	}
	if s.matched < len(s.delimiter) {
		s.bad = s.bad || !s.begun && s.matched == 0 // text before the first
		return
	}
	if s.wanted {
		value := string(s.line[:max(0, len(s.line)-len(s.delimiter))])
		s.bad = s.bad || len(value) > maxFormModel || s.model != "" && s.model != value
		s.model = value
	}
	s.state, s.line, s.matched, s.wanted, s.begun = atBorder, s.line[:0], 0, false, true
}

// fieldName is the name of the form's field whose part has a header; empty: none, or
// a file. ok is false where another parser may read another name, or another value.
func fieldName(header []byte) (field string, ok bool) {
	seen, coded := false, false
	for line := range bytes.SplitSeq(bytes.TrimSuffix(header, []byte("\r\n\r\n")), []byte("\r\n")) {
		if len(line) == 0 {
			continue
		}
		name, value, colon := bytes.Cut(line, []byte(":"))
		if !colon || len(name) == 0 || bytes.ContainsAny(name, " \t") { // a folded line begins with one
			return "", false
		}
		switch textproto.CanonicalMIMEHeaderKey(string(name)) {
		case "Content-Transfer-Encoding":
			coded = true // which some undo
		case "Content-Disposition":
			_, params, err := mime.ParseMediaType(string(bytes.TrimSpace(value)))
			if err != nil || seen {
				return "", false
			}
			if seen = true; params["filename"] == "" {
				field = params["name"]
			}
		}
	}
	return field, field != "model" || !coded
}

// badForm answers a form that means one thing to us and may mean another elsewhere.
var badForm = failure{status: http.StatusBadRequest, kind: kindInvalid, code: "invalid_form",
	message: "The multipart form could not be read, or names more than one model."}

// strayModel is the error of a form that names a model too late that its upstream
// does not take.
type strayModel struct{ model string }

// Error implements error.
func (e *strayModel) Error() string { return "gateway: the upstream does not take this model" }

// formReader is what is left of a form to be read on its way to an upstream.
type formReader struct {
	r io.Reader
	s *formScanner
}

// Read implements io.Reader. A form that turns out to be for a model that its upstream
// does not take ends in an error, so that the upstream never has it as a whole.
func (f *formReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if f.s.scan(p[:n]); f.s.bad || f.s.up != nil && !f.s.up.serves(f.s.model) {
		return 0, &strayModel{f.s.model}
	}
	return n, err
}
