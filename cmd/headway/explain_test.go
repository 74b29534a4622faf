package main

import (
	"encoding/json"
	"log/slog"
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
routes: [{path: /v1/*, upstreams: [own, rented]}, {path: /v1/alone, upstream: own}, {path: /v1/status, upstream: rented, methods: [GET]}]
queueing: {queue_timeout: 1m}
turns: [{name: answer, path: /v1/turns/answer, steps: [{name: reply, model: m, upstreams: [own], max_tokens: 10}]}]
rate_limiting:
  per_client: {requests: {limit: 600, per: 1m}}
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
		{[]string{"--key", "secret-web", "--model", "m"}, exitUsage, "", "it is a key itself"},
		{[]string{"--key", "nobody", "--model", "m"}, exitUsage, "", `no key with the id "nobody"; headway config show lists the keys`},
		{[]string{"--model", "m"}, exitUsage, "", "a key is missing: give its id (--key"},
		{[]string{"--key", "web", "--tokens", "-4"}, exitUsage, "", "--tokens: -4 is fewer than none"},
		{[]string{"--key", "web", "--max-tokens", "-4"}, exitUsage, "", "--max-tokens: -4 is fewer than none"},
		{[]string{"--key", "web", "--method", "get", "--path", "/v1/status"}, exitOK, `key web, model "", GET /v1/status`, ""},
		{[]string{"--key", "web", "--method", "GET", "--path", "/elsewhere"}, exitUsage, "", "no route takes GET /elsewhere"},
		{[]string{"--key", "web", "--model", "m"}, exitOK, "client (each address)  requests  600 per 1m, burst 600  1     -     429", ""},
		{[]string{"--key", "web", "--model", "m", "--client", "10.0.0.9"}, exitOK, "key web, client 10.0.0.9, model", ""},
		{[]string{"--key", "web", "--model", "m", "--client", "here"}, exitUsage, "", `client "here" is no IP address`},
		{[]string{"--key", "web", "--model", "m", "--path", "/direct/own/v1/chat/completions"}, exitOK, "agents    own: refused at once where no slot is free (a direct path never waits)", ""},
		{[]string{"--key", "web", "--path", "/v1/alone"}, exitOK, "agents    own: waits for a slot up to 1m, tenant ann, weight 3", ""},
		{[]string{"--key", "web", "--path", "/v1/turns/answer", "--tokens", "9"}, exitOK, "reply  dispatch  m      19    answers the caller", ""},
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
	if code != exitOK || json.Unmarshal([]byte(stdout), &e) != nil || !e.Live || e.Limits[0].Left != nil || e.Limits[1].Left == nil || *e.Limits[1].Left != 5 {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	code, stdout, _ = headway(ask...)
	if code != exitOK || !strings.Contains(stdout, "waiting at this replica: 0, of this tenant 0") || !strings.Contains(stdout, "3 slots, 0 held, 0 waiting here, well") {
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
		{[]string{"--admin-token", "${OTHER_TOKEN}"}, exitUsage, "taken from OTHER_TOKEN, which is wrong; --admin-token names another"},
		{[]string{"--admin-token", "${NOPE}"}, exitUsage, "--admin-token: the variable NOPE is not set"},
		{[]string{"--key", ""}, exitUsage, "--key"},
		{[]string{"--admin-token", "admin-secret"}, exitUsage, "is not like '${NAME}'"},
		{[]string{"--key", "nobody"}, exitUsage, `no key with the id "nobody"`},
		{[]string{"--admin", r.URL()}, exitFailed, "the admin listener of a replica (server.admin_listen)?"},
		{[]string{"--admin", "127.0.0.1:9090"}, exitUsage, "is not like http://127.0.0.1:9090"},
		{[]string{"--admin", "http://" + nobody.Addr().String()}, exitFailed, "connection refused: nothing listens on " + nobody.Addr().String() + "; --admin is"},
	} {
		code, stdout, stderr := headway(append(ask, c.more...)...)
		if code != c.code || !strings.Contains(stderr, c.errs) || strings.Contains(stdout+stderr, "admin-secret") {
			t.Errorf("%v: exit %d\n%s%s", c.more, code, stdout, stderr)
		}
	}
	t.Setenv("HEADWAY_ADMIN_TOKEN", "")
	if code, _, stderr := headway(ask...); code != exitUsage || !strings.Contains(stderr, "taken from HEADWAY_ADMIN_TOKEN, which is not set") {
		t.Errorf("without a token: exit %d: %s", code, stderr)
	}
}

// TestConfigHere: the file in the working directory is what explain and serve take.
func TestConfigHere(t *testing.T) {
	t.Chdir(t.TempDir())
	code, _, stderr := headway("explain", "--key", "web", "--model", "m")
	if code != exitUsage || !strings.Contains(stderr, "there is no headway.yaml here: name a file with --config, or a running replica with --admin") {
		t.Errorf("explain without a file: exit %d: %s", code, stderr)
	}
	log := slog.New(slog.DiscardHandler)
	if got := hereConfig(log); got != "" {
		t.Errorf("serve takes %q where there is none", got)
	}
	if err := os.WriteFile(defaultConfigFile, []byte("no: configuration"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := headway("serve"); code != exitUsage || !strings.Contains(stderr, `unknown field "no"`) || !strings.Contains(stderr, "the file in the working directory") {
		t.Errorf("serve beside a wrong file: exit %d: %s", code, stderr)
	}
}
