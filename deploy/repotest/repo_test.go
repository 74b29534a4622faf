// Package repotest keeps the promises that the repository makes about itself:
// which package may import which and why, that everything exported is
// documented, how long a function may get, that documents name only what
// exists. What a reviewer would otherwise have to remember fails `go test`
// here, with the reason beside it.
//
// The rules look at the tree only: they build nothing but the package list,
// and take about a second.
package repotest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// modulePath is the module's own import path.
const modulePath = "github.com/headway-limiter/headway"

// root is the repository's top directory, seen from this package.
const root = "../.."

// goPackage is what `go list` says about one package of the module. Import
// paths of the module itself are kept without the module's path: "limiter".
type goPackage struct {
	ImportPath                         string
	Name                               string
	Imports, TestImports, XTestImports []string
}

// packages lists every package of the module, once per run.
var packages = sync.OnceValues(func() ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, modulePath+"/")
		all = append(all, p)
	}
})

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	all, err := packages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// goFile is one parsed source file.
type goFile struct {
	path   string // from the top of the repository, with slashes
	source []byte
	syntax *ast.File
}

func (f goFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// dir is the file's package, as goPackage.ImportPath has it.
func (f goFile) dir() string { return path.Dir(f.path) }

// fset holds the positions of all goFiles.
var fset = token.NewFileSet()

// goFiles parses every Go file of the repository, of all its modules.
var goFiles = sync.OnceValues(func() ([]goFile, error) {
	var files []goFile
	for name, source := range treeFiles(".go") {
		syntax, err := parser.ParseFile(fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, goFile{name, source, syntax})
	}
	return files, nil
})

func parsedFiles(t *testing.T) []goFile {
	t.Helper()
	files, err := goFiles()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("found no Go files: the tests look in the wrong place")
	}
	return files
}

// ignored is what .gitignore names: products, not sources.
var ignored = map[string]bool{".git": true, ".fleet": true, "bin": true, "node_modules": true}

// treeFiles yields the text files of the repository whose names end in one of
// the suffixes. What .gitignore names is left out, and so are binaries.
func treeFiles(suffixes ...string) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if ignored[d.Name()] {
					return filepath.SkipDir
				}
				return nil
			}
			for _, s := range suffixes {
				if !strings.HasSuffix(d.Name(), s) {
					continue
				}
				text, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				if bytes.IndexByte(text, 0) >= 0 {
					continue
				}
				name, err := filepath.Rel(root, p)
				if err != nil {
					return err
				}
				if !yield(filepath.ToSlash(name), text) {
					return filepath.SkipAll
				}
				break
			}
			return nil
		})
		if err != nil {
			panic(err) // the tree of the test itself cannot be read
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
