package repotest

import (
	"go/ast"
	"go/scanner"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Budgets of code that is not a test. Long functions and files are where
// readers give up.
const (
	maxFunction     = 80 // lines, from the first of its signature to the last brace
	medianFunction  = 10 // the aim is 8; above 10 something has gone wrong
	ninthFunction   = 30 // the 90th percentile
	maxFile         = 430
	maxInterface    = 5    // methods
	minCommentShare = 0.15 // of a package's lines that are not blank
)

type finding struct {
	pos  token.Pos
	what string
}

// impurities finds goroutines and clock reads.
func impurities(file *ast.File) (found []finding) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, finding{n.Pos(), "starts a goroutine: pure packages leave that to their caller"})
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}, n.Sel.Name) {
				found = append(found, finding{n.Pos(), "uses time." + n.Sel.Name + ": pure packages take the time as an argument"})
			}
		}
		return true
	})
	return found
}

func TestFunctionsAndFilesFitTheirBudgets(t *testing.T) {
	var lengths []int
	for _, f := range parsedFiles(t) {
		if f.isTest() {
			continue
		}
		if n := fset.File(f.syntax.Pos()).LineCount(); n > maxFile {
			t.Errorf("%s has %d lines, more than %d: cut it by idea", f.path, n, maxFile)
		}
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			if lengths = append(lengths, n); n > maxFunction {
				t.Errorf("%v: %s has %d lines, more than %d", fset.Position(fn.Pos()), fn.Name.Name, n, maxFunction)
			}
		}
	}
	slices.Sort(lengths)
	median, ninth := lengths[len(lengths)/2], lengths[len(lengths)*9/10]
	t.Logf("%d functions: median %d lines, 90th percentile %d, longest %d", len(lengths), median, ninth, lengths[len(lengths)-1])
	if median > medianFunction || ninth > ninthFunction {
		t.Errorf("functions have a median of %d lines and a 90th percentile of %d; the budget is %d and %d", median, ninth, medianFunction, ninthFunction)
	}
}

// largeInterfaces are the exceptions to maxInterface, with their reasons.
var largeInterfaces = map[string]string{
	"limiter.order": "unexported: how the line sees the disciplines that it chooses from itself",
}

func TestInterfacesAreSmall(t *testing.T) {
	excused := map[string]bool{}
	for _, f := range parsedFiles(t) {
		if f.isTest() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			i, ok := spec.Type.(*ast.InterfaceType)
			if !ok || i.Methods.NumFields() <= maxInterface {
				return true
			}
			name := f.syntax.Name.Name + "." + spec.Name.Name
			if excused[name] = true; largeInterfaces[name] == "" {
				t.Errorf("%v: %s has %d methods; its consumer should ask for at most %d", fset.Position(i.Pos()), name, i.Methods.NumFields(), maxInterface)
			}
			return true
		})
	}
	for name := range largeInterfaces {
		if !excused[name] {
			t.Errorf("largeInterfaces excuses %s, which needs no excuse", name)
		}
	}
}

func TestCodeIsCommented(t *testing.T) {
	comments, lines := map[string]int{}, map[string]int{}
	for _, f := range parsedFiles(t) {
		if !f.isTest() {
			c, n := countLines(f)
			comments[f.dir()] += c
			lines[f.dir()] += n
		}
	}
	for pkg, n := range lines {
		share := float64(comments[pkg]) / float64(n)
		t.Logf("%-20s %5d lines, %2.0f %% comments", pkg, n, 100*share)
		// Programs explain themselves in their help texts, and the store's
		// conformance suite is tests in all but name.
		if share < minCommentShare && !strings.HasPrefix(pkg, "cmd/") && pkg != "limiter/storetest" {
			t.Errorf("%s: %.0f %% of the lines are comments, fewer than %.0f %%: say why, in which units, up to which bound", pkg, 100*share, 100*minCommentShare)
		}
	}
}

// countLines counts the lines with a comment and all lines that are not blank.
// A help tag is the comment of its field.
func countLines(f goFile) (comments, all int) {
	seen, commented := map[int]bool{}, map[int]bool{}
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(f.path, -1, len(f.source))
	s.Init(file, f.source, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return len(commented), len(seen)
		}
		if tok == token.SEMICOLON && text == "\n" {
			continue // inserted at the end of a line
		}
		first := file.Line(pos)
		for i := range strings.Count(text, "\n") + 1 {
			seen[first+i] = true
			if tok == token.COMMENT || tok == token.STRING && strings.Contains(text, ` help:"`) {
				commented[first+i] = true
			}
		}
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range parsedFiles(t) {
		has := f.syntax.Doc != nil && len(strings.TrimSpace(f.syntax.Doc.Text())) > 0
		documented[f.dir()] = documented[f.dir()] || has
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment: say what it is for and on which theory it stands", pkg)
		}
	}
}

func TestEverythingExportedIsDocumented(t *testing.T) {
	for _, f := range parsedFiles(t) {
		if f.isTest() || f.syntax.Name.Name == "main" {
			continue
		}
		for _, d := range f.syntax.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%v: %s has no comment", fset.Position(name.Pos()), name.Name)
			}
		}
	}
}

// undocumented lists the exported names of a declaration that nothing explains.
// In a group, the comment of the group or one behind the line is enough.
func undocumented(d ast.Decl) (names []*ast.Ident) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && receiverIsExported(d) {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Doc == nil && s.Comment == nil && d.Doc == nil && s.Name.IsExported() {
					names = append(names, s.Name)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if s.Doc == nil && s.Comment == nil && d.Doc == nil && name.IsExported() {
						names = append(names, name)
					}
				}
			}
		}
	}
	return names
}

// receiverIsExported reports whether a method can be seen from outside.
func receiverIsExported(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	// The first name in the receiver's type is the type's, later ones are its
	// type parameters.
	var receiver *ast.Ident
	ast.Inspect(fn.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && receiver == nil {
			receiver = id
		}
		return receiver == nil
	})
	return receiver.IsExported()
}
