package lua

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var use = regexp.MustCompile(`\b(KEYS|ARGV)\[([^\]]+)\]`)

// uses returns the distinct KEYS[...] and ARGV[...] expressions of text, sorted.
func uses(text string) []string {
	seen := map[string]bool{}
	for _, m := range use.FindAllStringSubmatch(text, -1) {
		seen[m[1]+"["+strings.ReplaceAll(m[2], " ", "")+"]"] = true
	}
	var list []string
	for u := range seen {
		list = append(list, u)
	}
	slices.Sort(list)
	return list
}

// split cuts a script file into its leading comment and its code.
func split(file string) (header, code string) {
	var h, c []string
	for line := range strings.Lines(file) {
		if len(c) == 0 && strings.HasPrefix(line, "--") {
			h = append(h, line)
		} else {
			c = append(c, line)
		}
	}
	return strings.Join(h, ""), strings.Join(c, "")
}

// files returns every script file by its name without the suffix.
func files(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no script files: %v", err)
	}
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimSuffix(path, ".lua")] = string(text)
	}
	return texts
}

// numbered is a KEYS or ARGV slot of a script, rather than of one of its bids.
var numbered = regexp.MustCompile(`^(KEYS|ARGV)\[\d+\]$`)

// before returns the code of all preludes that are joined in front of script name.
func before(name string, files map[string]string) (code []string) {
	for _, s := range Scripts {
		for other, text := range files {
			if s.Name == name && strings.HasPrefix(other, "prelude") && strings.Contains(s.Source, text) {
				_, c := split(text)
				code = append(code, c)
			}
		}
	}
	return code
}

// TestHeaders: the arguments a header names are exactly those the code reads; a
// script's header names those that its preludes read by number as well.
func TestHeaders(t *testing.T) {
	all := files(t)
	for name, body := range all {
		header, code := split(body)
		got, want := uses(code), uses(header)
		for _, c := range before(name, all) {
			for _, u := range uses(c) {
				if numbered.MatchString(u) && !slices.Contains(got, u) {
					got = append(got, u)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: code reads %v, header names %v", name, got, want)
		}
		if !strings.HasPrefix(header, "-- "+name+": ") {
			t.Errorf("%s: header does not begin with the script's name and purpose", name)
		}
		if !strings.HasPrefix(name, "prelude") && !strings.Contains(header, "-- Reply") {
			t.Errorf("%s: header does not describe the reply", name)
		}
	}
}

// TestFiles: every file is short and keeps to what all servers have.
func TestFiles(t *testing.T) {
	banned := regexp.MustCompile(`\b(tostring|cjson|cmsgpack|struct|bit)\b[.(]`)
	for name, text := range files(t) {
		if n := strings.Count(text, "\n"); n > 90 {
			t.Errorf("%s.lua: %d lines, at most 90", name, n)
		}
		if m := banned.FindString(text); m != "" {
			t.Errorf("%s.lua: uses %s", name, m)
		}
	}
}
