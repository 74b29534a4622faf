package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/certtest"
	"github.com/headway-limiter/headway/gateway/config"
)

// TestListenerTLS: what is wrong only with files that can be read.
func TestListenerTLS(t *testing.T) {
	a := certtest.New(t, "authority")
	a.Issue("one")
	a.Issue("two")
	a.IssueUntil("old", time.Now().Add(-time.Minute))
	parse := func(cert, key string) (*config.Config, error) {
		return config.Parse(fmt.Appendf(nil, changeBase+"server:\n  admin_tls: {cert: %q, key: %q}\n", a.Path(cert), a.Path(key)), nil)
	}
	for _, c := range []struct{ cert, key, wrong string }{
		{"one.pem", "one.key", ""},
		{"one.pem", "two.key", "line 6: server.admin_tls.key: \"" + a.Path("two.key") + "\" does not go with \"" + a.Path("one.pem") + "\" (tls: private key does not match public key); write the private key that"},
		{"one.pem", "two.pem", "line 6: server.admin_tls.key: "},
		{"one.key", "one.pem", "line 6: server.admin_tls.cert: there is no certificate in"},
	} {
		_, err := parse(c.cert, c.key)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s and %s: got %v, want %q", c.cert, c.key, err, c.wrong)
		}
	}
	old, err := parse("old.pem", "old.key")
	if err != nil {
		t.Fatal(err)
	}
	if w := old.Warnings(); len(w) != 1 || !strings.HasPrefix(w[0].String(), "line 6: server.admin_tls.cert: has expired on ") {
		t.Errorf("an expired certificate: warnings %v", w)
	}
	// The section cannot be changed while running, and is no difference between replicas.
	one, err := parse("one.pem", "one.key")
	if err != nil {
		t.Fatal(err)
	}
	got, restart, err := old.Change(one)
	if err != nil || len(restart) != 2 || restart[0].Path != "server.admin_tls.cert" || got.Server.AdminTLS != old.Server.AdminTLS {
		t.Errorf("changed: %v, restart for %v", err, restart)
	}
	if old.Hash() != one.Hash() || one.Hash() != parseMore(t, changeBase, "").Hash() {
		t.Error("the paths of files count as a difference between replicas")
	}
	if err := os.Remove(a.Path("one.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Server.AdminTLS.Read("server.admin_tls"); err == nil || !strings.Contains(err.Error(), "server.admin_tls.key: there is no file") {
		t.Errorf("a file that went: %v", err)
	}
}
