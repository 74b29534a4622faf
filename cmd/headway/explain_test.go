package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
)

const explainedConfig = `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", admin_token: admin-secret}
redis: {timeout: 2s}
keys: [{id: web, key: secret-web, user: ann}]
upstreams:
  - {name: own, url: "http://127.0.0.1:9000", slots: 3}
  - {name: rented, url: "http://127.0.0.1:9000", throttle: {enabled: true}}
routes: [{path: /v1/*, upstreams: [own, rented]}]
rate_limiting:
  per_user: {requests: {limit: 5, per: 1h}, max_in_flight_requests: 2}
  fair_queuing: {enabled: true, weights: [{identity: ann, weight: 3}]}
`

func TestExplainCommand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "headway.yaml")
	prompt := filepath.Join(dir, "prompt.txt")
	for name, text := range map[string]string{file: explainedConfig, prompt: "hello world"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("WEB_KEY", "secret-web")
	t.Setenv("WRONG_KEY", "secret-wrong")
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--key", "web", "--model", "gpt-4o", "--prompt-file", prompt}, exitOK, "counted with o200k_base", ""},
		{[]string{"--key", "${WEB_KEY}", "--model", "m", "--tokens", "7"}, exitOK, "key web, model \"m\"", ""},
		{[]string{"--key", "web", "--model", "m"}, exitOK, "tenant ann (user), weight 3, scope exact, waits up to 5s", ""},
		{[]string{"--key", "web", "--model", "m"}, exitOK, "own       yes        3 slots  -", ""},
		{[]string{"--key", "web", "--model", "m", "--batch"}, exitOK, "batch: in turn by cost", ""},
		{[]string{"--key", "web", "--model", "m", "--json"}, exitOK, `"verdict":"Would be admitted`, ""},
		{[]string{"--key", "${WRONG_KEY}", "--model", "m"}, exitUsage, "", "none of the configured keys"},
		{[]string{"--key", "${NO_KEY_AT_ALL}", "--model", "m"}, exitUsage, "", "NO_KEY_AT_ALL is not set"},
		{[]string{"--key", "secret-web", "--model", "m"}, exitUsage, "", "no key with that id"},
		{[]string{"--key", "web", "--prompt-file", filepath.Join(dir, "none")}, exitUsage, "", "no such file"},
		{[]string{"--key", "web", "--prompt-file", prompt, "--tokens", "3"}, exitUsage, "", "not both"},
		{[]string{"--key", "web", "--admin", "http://127.0.0.1:9"}, exitUsage, "", "not both"},
		{[]string{"--key", "web", "stray"}, exitUsage, "", "--help"},
	} {
		code, stdout, stderr := headway(append([]string{"explain", "--config", file}, c.args...)...)
		if code != c.code || !strings.Contains(stdout, c.out) || !strings.Contains(stderr, c.errs) {
			t.Errorf("explain %s: exit %d\nstdout: %s\nstderr: %s", strings.Join(c.args, " "), code, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, "secret-") {
			t.Errorf("explain %s tells a key:\n%s%s", strings.Join(c.args, " "), stdout, stderr)
		}
	}
	if code, stdout, _ := headway("explain", "--help"); code != exitOK || !strings.Contains(stdout, "headway explain --key web --model gpt-4o") {
		t.Errorf("--help: exit %d\n%s", code, stdout)
	}
}

// TestExplainAsksAReplica asks a running one, which wants its token.
func TestExplainAsksAReplica(t *testing.T) {
	cfg, err := config.Parse([]byte(explainedConfig), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	r, err := replica.Start(t.Context(), cfg, replica.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Shutdown(t.Context())
	t.Setenv("HEADWAY_ADMIN_TOKEN", "admin-secret")
	t.Setenv("OTHER_TOKEN", "wrong")
	ask := []string{"explain", "--admin", r.AdminURL(), "--key", "web", "--model", "m", "--tokens", "9"}
	code, stdout, stderr := headway(append(ask, "--json")...)
	var e gateway.Explanation
	if code != exitOK || json.Unmarshal([]byte(stdout), &e) != nil || !e.Live || e.Limits[0].Left == nil || *e.Limits[0].Left != 5 {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	code, stdout, _ = headway(ask...)
	if code != exitOK || !strings.Contains(stdout, "waiting at this replica: 0, of this tenant 0") || !strings.Contains(stdout, "3 slots, 0 held") {
		t.Errorf("exit %d: %s", code, stdout)
	}
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for _, c := range []struct {
		more []string
		code int
		errs string
	}{
		{[]string{"--admin-token", "${OTHER_TOKEN}"}, exitUsage, "status 401"},
		{[]string{"--admin-token", "admin-secret"}, exitUsage, "is not like '${NAME}'"},
		{[]string{"--key", "nobody"}, exitUsage, "no key with that id"},
		{[]string{"--admin", r.URL()}, exitFailed, "status 4"},
		{[]string{"--admin", "127.0.0.1:9090"}, exitUsage, "is not like http://127.0.0.1:9090"},
		{[]string{"--admin", "http://" + nobody.Addr().String()}, exitFailed, "refused"},
	} {
		code, stdout, stderr := headway(append(ask, c.more...)...)
		if code != c.code || !strings.Contains(stderr, c.errs) || strings.Contains(stdout+stderr, "admin-secret") {
			t.Errorf("%v: exit %d\n%s%s", c.more, code, stdout, stderr)
		}
	}
}
