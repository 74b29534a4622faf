package gateway

import "encoding/json"

// usage is what a provider says a request has cost. Streams may report it
// several times, growing, so the largest value of each field counts.
type usage struct {
	Total      int64 `json:"total_tokens"`
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	// Written is what Anthropic stored of a prompt, which its input leaves out.
	Written int64 `json:"cache_creation_input_tokens"`
	// Read is what it took from its cache, which is left out, too, and not limited.
	Read int64 `json:"cache_read_input_tokens"`
	seen bool
}

// total returns the tokens used; false when nothing was reported. OpenAI's chat
// calls the parts prompt and completion, its responses and Anthropic's messages
// input and output; a total that leaves out a part counts less than the parts.
// What Anthropic read from its cache counts in none of its limits, nor here.
func (u usage) total() (int64, bool) {
	sum := max(u.Prompt, u.Input) + max(u.Completion, u.Output) + u.Written
	return max(u.Total, sum), u.seen
}

// merge takes in one report. Values that are no counts are left out.
func (u *usage) merge(raw []byte) {
	var r usage
	if json.Unmarshal(raw, &r) != nil {
		return
	}
	for _, f := range [...]struct{ to, from *int64 }{
		{&u.Total, &r.Total}, {&u.Prompt, &r.Prompt}, {&u.Completion, &r.Completion},
		{&u.Input, &r.Input}, {&u.Output, &r.Output}, {&u.Written, &r.Written}, {&u.Read, &r.Read},
	} {
		if *f.from > 0 && *f.from <= maxEstimate {
			*f.to, u.seen = max(*f.to, *f.from), true
		}
	}
}

const (
	// maxUsage bounds a usage object, in bytes; a larger one is not read.
	maxUsage = 8 << 10
	// maxName is longer than any member name that is looked for.
	maxName = 16
)

// usageScanner finds the member "usage" of a JSON object, or of its member
// "response" or "message", or "tokens" of its "meta", in bytes that come in pieces. It keeps a name, a
// depth and the usage object itself, never the text around it, so an answer of
// any size costs one pass. On bytes that are not JSON it finds nothing or
// nonsense, but does not fail.
type usageScanner struct {
	usage  usage
	begun  bool // there was an object
	failed bool // it, or its response, had an error

	depth   int
	inText  bool // inside a string
	escaped bool // behind a backslash
	name    [maxName]byte
	length  int    // of name; longer names are none that is looked for
	key     string // the member at depth 1 whose value is being read
	inner   string // the same at depth 2
	capture []byte // the usage object so far; nil: not inside one
	ends    int    // depth at which capture is complete
}

// reset prepares for the next object. What was found stays.
func (s *usageScanner) reset() {
	*s = usageScanner{usage: s.usage, begun: s.begun, failed: s.failed, capture: s.capture[:0:0]}
}

// scan reads the next piece. Outside strings only brackets and colons matter,
// inside them only quotes and backslashes.
func (s *usageScanner) scan(p []byte) {
	for _, b := range p {
		if s.capture != nil {
			s.keep(b)
		}
		if s.inText {
			s.text(b)
			continue
		}
		switch b {
		case '"':
			s.inText, s.length = true, 0
		case ':':
			s.member()
		case '{', '[':
			s.open(b)
		case '}', ']':
			s.close()
		}
	}
}

// text reads a byte inside a string. Names matter at the two outer levels.
func (s *usageScanner) text(b byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case b == '\\':
		s.escaped = true
	case b == '"':
		s.inText = false
		return
	}
	if s.depth <= 2 {
		if s.length < maxName {
			s.name[s.length] = b
		}
		s.length = min(s.length+1, maxName+1)
	}
}

// member notes that the string just read is the name of what follows.
func (s *usageScanner) member() {
	name := "" // constants, because a conversion would allocate
	switch string(s.name[:min(s.length, maxName)]) {
	case "usage":
		name = "usage"
	case "response":
		name = "response"
	case "message":
		name = "message"
	case "error":
		name = "error"
	case "meta":
		name = "meta"
	case "tokens":
		name = "tokens"
	}
	switch s.depth {
	case 1:
		s.key = name
	case 2:
		s.inner = name
	}
}

// open enters an object or list, and begins to capture if it is the usage.
func (s *usageScanner) open(b byte) {
	wanted := s.depth == 1 && s.key == "usage" ||
		s.depth == 2 && s.inner == "usage" && (s.key == "response" || s.key == "message") ||
		s.depth == 2 && s.inner == "tokens" && s.key == "meta" // of rerankers
	if wanted && b == '{' && s.capture == nil {
		s.capture, s.ends = append(make([]byte, 0, 256), b), s.depth
	}
	if b == '{' && (s.depth == 1 && s.key == "error" || s.depth == 2 && s.key == "response" && s.inner == "error") {
		s.failed = true
	}
	s.begun = true
	s.depth++
	if s.depth == 2 {
		s.inner = ""
	}
}

// close leaves an object or list. A surplus bracket takes the depth below zero,
// where nothing is looked for any more.
func (s *usageScanner) close() {
	s.depth--
	if s.capture != nil && s.depth == s.ends {
		s.usage.merge(s.capture)
		s.capture = nil
	}
}

// keep adds to the captured object, or gives up on one that is too large.
func (s *usageScanner) keep(b byte) {
	if s.capture = append(s.capture, b); len(s.capture) > maxUsage {
		s.capture, s.key, s.inner = nil, "", ""
	}
}
