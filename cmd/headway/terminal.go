package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Terminal sequences (ECMA-48), the few that every terminal knows.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearBelow = "\x1b[J"
	bold       = "\x1b[1m"
	dim        = "\x1b[2m"
	red        = "\x1b[31m"
	green      = "\x1b[32m"
	plain      = "\x1b[0m"
)

// terminal is what live tables are drawn on, in place.
type terminal struct {
	out    io.Writer
	live   bool // there is somebody to look at it
	colour bool
	width  func() int // columns
	drawn  int        // lines of the table on the screen
}

// newTerminal looks at out. Where it is no terminal, or asked is false, nothing
// is drawn in place. NO_COLOR takes the colours away.
func newTerminal(out io.Writer, asked bool) terminal {
	t := terminal{out: out, width: func() int { return 80 }}
	f, ok := out.(*os.File)
	if ok && asked && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		t.live, t.colour = true, os.Getenv("NO_COLOR") == ""
		t.width = func() int {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil {
				return w
			}
			return 80
		}
	}
	return t
}

// draw replaces the table on the screen by a new one, in one write so that it
// does not flicker. Where nobody looks, one table follows another.
func (t *terminal) draw(lines []string) {
	var b strings.Builder
	if t.live && t.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r%s", t.drawn, clearBelow)
	}
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	t.drawn = len(lines)
	io.WriteString(t.out, b.String())
}

// paint colours text where colours are wanted.
func (t *terminal) paint(colour, text string) string {
	if !t.colour {
		return text
	}
	return colour + text + plain
}

// cut shortens a line to width columns. Sequences take no column and are kept,
// so that a colour that was begun also ends.
func cut(line string, width int) string {
	var b strings.Builder
	escape, columns := false, 0
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z')
			b.WriteRune(r)
			continue
		default:
			if columns++; columns > width {
				continue
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}
