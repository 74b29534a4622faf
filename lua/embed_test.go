package lua

import (
	"os"
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

// TestHeaders: the arguments a header names are exactly those the code reads.
func TestHeaders(t *testing.T) {
	for name, body := range map[string]string{
		"admit": admitBody, "settle": settleBody, "lease": leaseBody, "inspect": inspectBody, "pool": poolBody,
		"prelude_tag": preludeTag, "prelude_pool": preludePool, "prelude_bid": preludeBid, "prelude_turn": preludeTurn,
		"prelude_told": preludeTold, "prelude_once": preludeOnce, "prelude_take": preludeTake, "prelude_stock": preludeStock,
	} {
		header, code := split(body)
		if got, want := uses(code), uses(header); !slices.Equal(got, want) {
			t.Errorf("%s: code reads %v, header names %v", name, got, want)
		}
		if !strings.HasPrefix(header, "-- "+name+": ") {
			t.Errorf("%s: header does not begin with the script's name and purpose", name)
		}
		if !strings.HasPrefix(name, "prelude") && !strings.Contains(header, "-- Reply, integers") {
			t.Errorf("%s: header does not describe the reply", name)
		}
	}
}

// TestFiles: every file is short and keeps to what all servers have.
func TestFiles(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	banned := regexp.MustCompile(`\b(tostring|cjson|cmsgpack|struct|bit)\b[.(]`)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".lua") {
			continue
		}
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > 90 {
			t.Errorf("%s: %d lines, at most 90", f.Name(), n)
		}
		if m := banned.FindString(string(text)); m != "" {
			t.Errorf("%s: uses %s", f.Name(), m)
		}
	}
}
