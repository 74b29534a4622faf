package cost

import (
	"encoding/hex"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxPieces bounds the pieces of text that are remembered for counting.
	maxPieces = 256
	// windowBytes and maxWindows bound what is counted of a text: all of it up to
	// their product, else so many windows of that size.
	windowBytes = 256
	maxWindows  = 8
	// slack is how far behind its place a window may look for a good end, in bytes.
	slack = 64
)

// Text is the text of a prompt, in pieces as JSON has it: what stands between the
// quotes of strings, with its escapes. The pieces are not copied and must not
// change. The zero Text is empty. It is not safe for concurrent use.
type Text struct {
	bytes  int64    // of all pieces, without escapes
	pieces [][]byte // every stride-th of them
	raw    int      // bytes of pieces, escapes included
	seen   int
	stride int
}

// Add takes in one more piece.
func (t *Text) Add(piece []byte) {
	if len(piece) == 0 {
		return
	}
	t.bytes += plainLength(piece)
	if len(t.pieces) == maxPieces {
		t.thin()
	}
	t.stride = max(t.stride, 1)
	if t.seen%t.stride == 0 {
		t.pieces, t.raw = append(t.pieces, piece), t.raw+len(piece)
	}
	t.seen++
}

// thin forgets every second piece.
func (t *Text) thin() {
	kept := t.pieces[:0]
	t.raw = 0
	for i := 0; i < maxPieces; i += 2 {
		kept, t.raw = append(kept, t.pieces[i]), t.raw+len(t.pieces[i])
	}
	t.pieces, t.stride = kept, 2*t.stride
}

// Bytes is the size of the text in UTF-8, without escapes.
func (t *Text) Bytes() int64 { return t.bytes }

// whole reports whether all of the text is counted.
func (t *Text) whole() bool { return t.stride <= 1 && t.raw <= windowBytes*maxWindows }

// windows calls f with parts of the text, without escapes, until it says to stop.
// Where the text is too long, they are spread evenly, and come in an order in which
// the first few are spread, too. The part is valid during the call only.
func (t *Text) windows(f func(part []byte) (more bool)) {
	var buf [windowBytes + slack]byte
	if t.whole() {
		for _, p := range t.pieces {
			for len(p) > 0 {
				n := cut(p, windowBytes)
				if !f(unescape(buf[:0], p[:n])) {
					return
				}
				p = p[n:]
			}
		}
		return
	}
	for i := range maxWindows {
		// 0, 3, 6, 1, 4, ...: 3 and maxWindows have no common divisor.
		at := (i * 3 % maxWindows) * (t.raw - windowBytes) / (maxWindows - 1)
		if !t.window(at, buf[:0], f) {
			return
		}
	}
}

// window calls f with the parts of the pieces that the window at an offset covers.
func (t *Text) window(at int, buf []byte, f func([]byte) bool) bool {
	left := windowBytes
	for _, p := range t.pieces {
		if at >= len(p) {
			at -= len(p)
			continue
		}
		if at > 0 {
			p = p[cut(p, at):]
			at = 0
		}
		n := cut(p, left)
		if n > 0 && !f(unescape(buf, p[:n])) {
			return false
		}
		if left -= n; left <= 0 {
			break
		}
	}
	return true
}

// cut finds where to cut p at about n bytes: before the next space that a letter
// follows, or else somewhere.
func cut(p []byte, n int) int {
	if len(p) <= n {
		return len(p)
	}
	for i := n; i < min(n+slack, len(p)-1); i++ {
		if p[i] == ' ' && ('a' <= p[i+1]|0x20 && p[i+1]|0x20 <= 'z') {
			return i
		}
	}
	for n < len(p) && !utf8.RuneStart(p[n]) {
		n++
	}
	return behindEscape(p, n)
}

// behindEscape moves a cut at n out of an escape, if it is in one.
func behindEscape(p []byte, n int) int {
	const longest = len(`\u0000`)
	for at := max(n-longest+1, 0); at < n; at++ {
		odd := false
		for i := at; i >= 0 && p[i] == '\\'; i-- {
			odd = !odd
		}
		if odd && at+1 < len(p) {
			if _, size := escape(p[at:]); at+size > n {
				return min(at+size, len(p))
			}
		}
	}
	return n
}

// plainLength is how long a piece is without its escapes.
func plainLength(p []byte) int64 {
	n := int64(0)
	for i := 0; i < len(p); n++ {
		if p[i] != '\\' || i+1 == len(p) {
			i++
			continue
		}
		r, size := escape(p[i:])
		n += int64(max(utf8.RuneLen(r), 1)) - 1
		i += size
	}
	return n
}

// unescape appends p without its escapes. One that was cut is taken as it stands.
func unescape(dst, p []byte) []byte {
	for i := 0; i < len(p); {
		if p[i] != '\\' || i+1 == len(p) {
			dst = append(dst, p[i])
			i++
			continue
		}
		r, size := escape(p[i:])
		dst = utf8.AppendRune(dst, r)
		i += size
	}
	return dst
}

// escape reads the escape that p, of at least two bytes, begins with.
func escape(p []byte) (r rune, size int) {
	switch p[1] {
	case 'n':
		return '\n', 2
	case 't':
		return '\t', 2
	case 'r':
		return '\r', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'u':
		high, ok := codeUnit(p)
		if !ok {
			return 'u', 2
		}
		if low, ok := codeUnit(p[6:]); ok && utf16.IsSurrogate(high) {
			if r := utf16.DecodeRune(high, low); r != utf8.RuneError {
				return r, 12
			}
		}
		if utf16.IsSurrogate(high) {
			return utf8.RuneError, 6
		}
		return high, 6
	}
	return rune(p[1]), 2
}

// codeUnit reads \uXXXX.
func codeUnit(p []byte) (rune, bool) {
	var b [2]byte
	if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
		return 0, false
	}
	_, err := hex.Decode(b[:], p[2:6])
	return rune(b[0])<<8 | rune(b[1]), err == nil
}
