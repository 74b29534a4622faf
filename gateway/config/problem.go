package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake, or one setting that does nothing.
type Problem struct {
	Line int    // 1-based line in the file; 0 when there is none
	Path string // field, such as keys[0].digest; empty for the file as a whole
	What string // what is wrong, with the offending value
	Fix  string // what to do about it
}

// String writes the problem on one line: line 4: server.listn: what; fix.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.What)
	if p.Fix != "" {
		b.WriteString("; " + p.Fix)
	}
	return b.String()
}

// Error is a configuration that is wrong, with every mistake in it.
type Error struct {
	File     string // name of the file; empty when the text had none
	Problems []Problem
}

// Error lists the mistakes, one a line, in the order of the file.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "config: %s", cmp.Or(e.File, "configuration"))
	if n := len(e.Problems); n == 1 {
		b.WriteString(" has 1 mistake:")
	} else {
		fmt.Fprintf(&b, " has %d mistakes:", n)
	}
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// sortProblems puts problems into the order of the file; those without a line
// come last, and equal lines keep the order in which they were found.
func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Compare(a.Line, b.Line)
	})
}

// didYouMean suggests the nearest of the known names, or lists them all when
// none is near. Near is a third of the name's length in edits, at least one:
// farther, a suggestion is more often wrong than right.
func didYouMean(name string, known []string) string {
	best, distance := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), k); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "known here: " + strings.Join(known, ", ")
}

// editDistance measures how far a slip of the fingers is from a name. It counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
