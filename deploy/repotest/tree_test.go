package repotest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/limiter"
)

func TestTopLevelIsWhatTheDesignSays(t *testing.T) {
	want := []string{
		"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "NOTICE", "README.md",
		"bench", "cmd", "deploy", "fleet", "gateway", "go.mod", "go.sum", "limiter", "lua",
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		// `go build ./cmd/headway` leaves a program; .gitignore knows it.
		program := !e.IsDir() && strings.HasPrefix(e.Name(), "headway")
		if !strings.HasPrefix(e.Name(), ".") && !ignored[e.Name()] && !program {
			got = append(got, e.Name())
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the top level holds\n%v, want\n%v", got, want)
	}
}

// reasonRow is a row of the reasons table in README.md.
var reasonRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|")

func TestReadmeExplainsEveryReason(t *testing.T) {
	_, section, ok := strings.Cut(readFile(t, "README.md"), "\n## Why a request was refused\n")
	if !ok {
		t.Fatal("README.md has no section \"Why a request was refused\"")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []limiter.Reason
	for _, m := range reasonRow.FindAllStringSubmatch(section, -1) {
		documented = append(documented, limiter.Reason(m[1]))
	}
	slices.Sort(documented)
	known := slices.Sorted(slices.Values(limiter.Reasons[:]))
	if !slices.Equal(documented, known) {
		t.Errorf("README.md explains the reasons\n%v, the limiter has\n%v", documented, known)
	}
}

func TestReadmeNamesEveryTarget(t *testing.T) {
	readme, contributing := readFile(t, "README.md"), readFile(t, "CONTRIBUTING.md")
	targets := regexp.MustCompile(`(?m)^([a-z-]+):.*## `).FindAllStringSubmatch(readFile(t, "Makefile"), -1)
	if len(targets) == 0 {
		t.Fatal("found no targets in Makefile")
	}
	known := map[string]bool{}
	for _, m := range targets {
		known[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)(?:^|[`+"`"+`\s])make ([a-z-]+)`).FindAllStringSubmatch(readme+contributing, -1) {
		if !known[m[1]] {
			t.Errorf("the documents name make %s, which is no documented target", m[1])
		}
	}
}

// notForAShell matches what cannot be pasted: a program that is only in bin/, and
// brackets around what may be left out.
var notForAShell = regexp.MustCompile(`(?m)(?:^|[&|;(]\s*)headway(?:-bench)?\s.*|.*\s\[-.*`)

func TestCommandsCanBePasted(t *testing.T) {
	blocks := 0
	for file, text := range treeFiles(".md") {
		for _, block := range strings.Split(string(text), "\n```sh\n")[1:] {
			blocks++
			commands, _, _ := strings.Cut(block, "\n```")
			for _, m := range notForAShell.FindAllString(commands, -1) {
				t.Errorf("%s: %q cannot be pasted: write bin/headway, and a line for each way to call it", file, m)
			}
		}
	}
	if blocks == 0 {
		t.Fatal("found no commands")
	}
}

func TestChangelogLinesAreTagged(t *testing.T) {
	line := regexp.MustCompile(`^\* \[(CHANGE|FEATURE|ENHANCEMENT|PERF|BUGFIX)\] [A-Z][^:]*: .+\.$`)
	for i, l := range strings.Split(readFile(t, "CHANGELOG.md"), "\n") {
		if strings.HasPrefix(l, "* ") && !line.MatchString(l) {
			t.Errorf("CHANGELOG.md:%d: want \"* [TAG] Area: what changes for the user.\", got %q", i+1, l)
		}
	}
}

// linkTarget is the address of a Markdown link.
var linkTarget = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)

func TestDocumentsLinkToWhatExists(t *testing.T) {
	for name, text := range treeFiles(".md") {
		for _, m := range linkTarget.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			at := root + "/" + name[:strings.LastIndex("/"+name, "/")] + "/" + m[1]
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			}
		}
	}
}

// unwanted is what must not stand in the tree. The classes of one letter keep
// the patterns from finding themselves.
var unwanted = map[*regexp.Regexp]string{
	regexp.MustCompile(`\b(?:TO[D]O|FI[X]ME|XX[X]|HA[C]K)\b`):                "finish it, or file an issue",
	regexp.MustCompile(`not [i]mplemented`):                                  "finish it, or leave it out",
	regexp.MustCompile(`(?:^|[\s"'(=])/(?:hom[e]|roo[t]|User[s]|wor[k])/\w`): "a path of somebody's machine",
	regexp.MustCompile(`registry\.npm[j]s|proxy\.gola[n]g|deb\.debia[n]`):    "a package registry's host: the clients know where to ask",
}

func TestTreeIsClean(t *testing.T) {
	for name, text := range treeFiles("") {
		for pattern, why := range unwanted {
			if at := pattern.FindIndex(text); at != nil {
				line := strings.Count(string(text[:at[0]]), "\n") + 1
				t.Errorf("%s:%d: %q: %s", name, line, text[at[0]:at[1]], why)
			}
		}
	}
}
