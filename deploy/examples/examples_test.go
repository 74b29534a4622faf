// Package examples keeps the example configurations loadable. They are read by
// people and copied, so they may not contain anything that warns either.
package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/gateway/certtest"
	"github.com/headway-limiter/headway/gateway/config"
)

// environment has what the files refer to without a default.
var environment = map[string]string{
	"MY_KEY": "sk-me", "ADMIN_TOKEN": "token", "TRIAL_KEY": "sk-trial", "PARTNER_KEY": "sk-partner",
	"OPENAI_API_KEY": "sk-upstream", "FALLBACK_API_KEY": "sk-fallback", "REDIS_ADDRESS": "redis:6379", "REDIS_PASSWORD": "secret", "REDIS_CA_FILE": "redis-sentinel.yaml", "POD_IP": "10.1.2.3",
	"GOSSIP_KEY": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",

	"HEADWAY_NAME": "replica-1", "HEADWAY_LISTEN": "127.0.0.1:20001", "HEADWAY_ADMIN": "127.0.0.1:20002",
	"HEADWAY_GOSSIP": "127.0.0.1:20003", "HEADWAY_JOIN_1": "127.0.0.1:20003", "HEADWAY_JOIN_2": "127.0.0.1:20004",
	"HEADWAY_JOIN_3": "127.0.0.1:20005", "HEADWAY_REDIS": "127.0.0.1:20006", "HEADWAY_UPSTREAM": "127.0.0.1:20007",
}

func TestExamplesLoadWithoutWarnings(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no examples: %v", err)
	}
	for name, value := range environment {
		t.Setenv(name, value)
	}
	a := certtest.New(t, "authority")
	a.Issue("gateway")
	t.Setenv("TLS_CERT", a.Path("gateway.pem"))
	t.Setenv("TLS_KEY", a.Path("gateway.key"))
	t.Setenv("TLS_CLIENT_CA", a.Path("authority.pem"))
	for _, file := range append(files, filepath.Join("..", "fleet", "headway.yaml")) {
		cfg, err := config.Load(file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, w := range cfg.Warnings() {
			t.Errorf("%s: %v", file, w)
		}
	}
}

// shown returns what is behind each beginning of a YAML block in a file.
func shown(t *testing.T, path ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "\n```yaml\n")[1:]
	if len(blocks) == 0 {
		t.Fatalf("%v shows no configuration", path)
	}
	return blocks
}

// What a README shows is copied, too.
func TestReadmeConfigurationsLoad(t *testing.T) {
	blocks := shown(t, "..", "..", "README.md")
	blocks = append(blocks, shown(t, "..", "..", "gateway", "rls", "README.md")[0]) // what follows is Envoy's
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "\n```\n")
		cfg, err := config.Parse([]byte(text), nil)
		if err != nil {
			t.Errorf("%v in\n%s", err, text)
			continue
		}
		for _, w := range cfg.Warnings() {
			t.Error(w)
		}
	}
}
