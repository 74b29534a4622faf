package repotest

import (
	"bytes"
	"go/ast"
	"go/build/constraint"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNoTestIsSkipped(t *testing.T) {
	for _, f := range parsedFiles(t) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow", "Short"}, sel.Sel.Name) {
				t.Errorf("%v: calls %s: a test that does not run proves nothing; install or start what it needs", fset.Position(call.Pos()), sel.Sel.Name)
			}
			return true
		})
		for _, group := range f.syntax.Comments {
			for _, c := range group.List {
				if constraint.IsGoBuild(c.Text) && f.isTest() && !slices.Contains([]string{"//go:build race", "//go:build !race"}, c.Text) {
					t.Errorf("%s: %q hides tests from go test ./...", f.path, c.Text)
				}
			}
		}
	}
}

func TestTestsDoNotSleep(t *testing.T) {
	for _, f := range parsedFiles(t) {
		// A file of helpers for bubbles says so.
		inBubble := bytes.Contains(f.source, []byte("synctest"))
		if !f.isTest() || inBubble {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%v: sleeps outside a synctest bubble: wait for the event instead", fset.Position(sel.Pos()))
				}
			}
			return true
		})
	}
}

// cited matches the name of a test, fuzz target or benchmark in running text.
var cited = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9_]+\b`)

func TestCitedTestsExist(t *testing.T) {
	exist := map[string]bool{}
	type citation struct{ where, name string }
	var citations []citation
	for _, f := range parsedFiles(t) {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				exist[fn.Name.Name] = true
			}
		}
		for _, group := range f.syntax.Comments {
			for _, name := range cited.FindAllString(group.Text(), -1) {
				citations = append(citations, citation{fset.Position(group.Pos()).String(), name})
			}
		}
	}
	for name, text := range treeFiles(".md", ".lua", "Makefile") {
		for _, test := range cited.FindAllString(string(text), -1) {
			citations = append(citations, citation{name, test})
		}
	}
	for _, c := range citations {
		// TestMain and the like are words of the testing package.
		if !exist[c.name] && !strings.HasPrefix(c.name, "TestMain") {
			t.Errorf("%s names %s, which does not exist", c.where, c.name)
		}
	}
}
