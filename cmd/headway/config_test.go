package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// headway runs the program with arguments.
func headway(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, &out, &errs)
	return code, out.String(), errs.String()
}

const rightConfig = `
keys: [{id: a, key: secret-a}]
upstreams: [{name: up, url: "http://127.0.0.1:9000"}]
routes: [{path: /v1/*, upstream: up}]
`

func TestConfigCommand(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	right := file("right.yaml", rightConfig)
	warned := file("warned.yaml", rightConfig+"rate_limiting: {fair_queuing: {max_wait_ms: 1}}\n")
	wrong := file("wrong.yaml", rightConfig+"redis:\n  timeout: 50\n  moed: embedded\n")
	for _, test := range []struct {
		args                []string
		code                int
		inStdout, inStderrs string
	}{
		{[]string{"config", "validate", right}, exitOK, right + ": ok\n", ""},
		{[]string{"config", "validate", warned}, exitOK, ": ok\n", "warning: line 5: rate_limiting.fair_queuing.max_wait_ms: "},
		{[]string{"config", "validate", wrong}, exitUsage, "", wrong + " has 2 mistakes:\n  line 6: redis.timeout: "},
		{[]string{"config", "validate", wrong}, exitUsage, "", `line 7: redis.moed: unknown field "moed"; did you mean "mode"?`},
		{[]string{"config", "validate", filepath.Join(dir, "none.yaml")}, exitUsage, "", "no such file"},
		{[]string{"config", "validate", right, right}, exitUsage, "", "--help"},
		{[]string{"config", "bogus"}, exitUsage, "", `unknown command "bogus" for "headway config"`},
		{[]string{"config"}, exitOK, "names every mistake", ""},
		{[]string{"config", "show", right}, exitOK, "digest: sha256:8766b9cb…", ""},
		{[]string{"config", "show", wrong}, exitUsage, "", "2 mistakes"},
		{[]string{"serve", "--config", wrong}, exitUsage, "", "2 mistakes"},
	} {
		code, stdout, stderr := headway(test.args...)
		if code != test.code || !strings.Contains(stdout, test.inStdout) || !strings.Contains(stderr, test.inStderrs) {
			t.Errorf("headway %s: exit %d\nstdout: %s\nstderr: %s", strings.Join(test.args, " "), code, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, "secret-a") {
			t.Errorf("headway %s tells a key", strings.Join(test.args, " "))
		}
		if test.code != exitOK && stdout != "" {
			t.Errorf("headway %s: a failure writes to stdout: %s", strings.Join(test.args, " "), stdout)
		}
	}
	code, stdout, _ := headway("config", "schema")
	var schema map[string]any
	if err := json.Unmarshal([]byte(stdout), &schema); err != nil || code != exitOK || schema["title"] == nil {
		t.Errorf("schema: exit %d, %v", code, err)
	}
}

// Files that the help names are there.
func TestHelpNamesFilesThatExist(t *testing.T) {
	for _, args := range [][]string{{"config", "validate", "--help"}, {"config", "show", "--help"}} {
		_, out, _ := headway(args...)
		named := regexp.MustCompile(`deploy/[a-z/]+\.yaml`).FindAllString(out, -1)
		if len(named) == 0 {
			t.Errorf("%v names no file", args)
		}
		for _, file := range named {
			if _, err := os.Stat(filepath.Join("..", "..", file)); err != nil {
				t.Errorf("%v: %v", args, err)
			}
		}
	}
}
