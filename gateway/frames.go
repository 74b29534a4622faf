package gateway

import "strings"

// frameScanner finds usage in the data lines of an event stream that comes in
// pieces, and errors that a provider tells in events. Frames are scanned in
// passing, however long.
type frameScanner struct {
	usageScanner
	served bool // a frame has told something before any error

	named  bool               // an event was called error
	early  bool               // this frame is called as one that tells nothing yet
	filled bool               // it has data
	line   [maxEventLine]byte // the beginning of a line that is not data
	column int                // bytes of the current line so far
	data   bool               // the line begins with "data:"
	other  bool               // it does not
	cr     bool               // the last byte was a carriage return
}

const (
	// dataField begins the lines that carry a frame's content.
	dataField = "data:"
	// eventField begins the line that names a frame.
	eventField = "event:"
	// maxEventLine is longer than any line that is looked for.
	maxEventLine = 40
)

// earlyEvents come before a provider has done anything, and an error may still
// be all that follows.
var earlyEvents = map[string]bool{"response.created": true, "response.queued": true, "response.in_progress": true, "ping": true}

// scan reads the next piece.
func (f *frameScanner) scan(p []byte) {
	for i, b := range p {
		after := f.cr
		f.cr = b == '\r'
		switch {
		case b == '\n' && after: // the second half of one line end
		case b == '\n' || b == '\r':
			f.endLine()
		case f.data:
			f.filled = true
			f.usageScanner.scan(p[i : i+1])
		default:
			if f.column < maxEventLine {
				f.line[f.column] = b
			}
			f.other = f.other || f.column >= len(dataField) || b != dataField[f.column]
			f.column++
			f.data = !f.other && f.column == len(dataField)
		}
	}
}

// endLine ends a line. A blank one ends the frame, any other that is not data may
// name it.
func (f *frameScanner) endLine() {
	if f.column == 0 {
		f.served = f.served || f.filled && !f.early && !f.named && !f.failed
		f.early, f.filled = false, false
		f.reset()
	} else if !f.data && f.column < maxEventLine {
		if name, ok := strings.CutPrefix(string(f.line[:f.column]), eventField); ok {
			name = strings.TrimPrefix(name, " ")
			f.early, f.named = earlyEvents[name], f.named || name == "error"
		}
	}
	f.column, f.data, f.other = 0, false, false
}
