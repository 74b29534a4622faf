package main

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/gateway/certtest"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
)

// TestAdminTLS: top and explain ask a listener with TLS, one that asks for
// certificates itself, and say which flag is missing.
func TestAdminTLS(t *testing.T) {
	a := certtest.New(t, "authority")
	a.Issue("admin")
	a.Issue("operator")
	t.Setenv("HEADWAY_ADMIN_TOKEN", "")
	start := func(clientCA string) (admin string) {
		cfg, err := config.Parse(fmt.Appendf(nil, `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", admin_tls: {cert: %q, key: %q, client_ca: %q}}
redis: {timeout: 2s}
keys: [{id: web, key: secret-web, user: ann}]
upstreams: [{name: own, url: "http://127.0.0.1:9000"}]
routes: [{path: /v1/*, upstream: own}]
`, a.Path("admin.pem"), a.Path("admin.key"), clientCA), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		r, err := replica.Start(t.Context(), cfg, replica.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Shutdown(t.Context()) })
		return r.AdminURL()
	}
	open, mutual := start(""), start(a.Path("authority.pem"))
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	bare := httptest.NewServer(http.NotFoundHandler())
	defer bare.Close()
	ca, cert, key := "--ca="+a.Path("authority.pem"), "--client-cert="+a.Path("operator.pem"), "--client-key="+a.Path("operator.key")
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitOK, "Would be admitted", []string{open, ca}},
		{exitOK, "Would be admitted", []string{mutual, ca, cert, key}},
		{exitFailed, "(server.admin_tls.client_ca), --client-cert and --client-key name one that it knows", []string{mutual, ca}},
		{exitUsage, "signed by unknown authority; --ca names the file", []string{open}},
		{exitUsage, "speaks TLS: write --admin https://127.0.0.1:", []string{strings.Replace(open, "https", "http", 1)}},
		{exitUsage, "speaks plain HTTP: write --admin http://127.0.0.1:", []string{strings.Replace(bare.URL, "http", "https", 1)}},
		{exitUsage, "are of no use without TLS: write --admin https://127.0.0.1:", []string{strings.Replace(open, "https", "http", 1), ca}},
		{exitUsage, "--client-cert and --client-key belong together", []string{mutual, ca, cert}},
		{exitUsage, "--client-cert and --client-key: tls:", []string{mutual, ca, cert, "--client-key=" + plain}},
		{exitUsage, "--ca: there is no certificate in", []string{open, "--ca=" + plain}},
		{exitUsage, "no such file", []string{open, "--ca=" + plain + ".none"}},
		{exitUsage, "are for a replica's listener: name it with --admin", []string{"", ca}},
	} {
		args := append([]string{"explain", "--key=web", "--model=m", "--admin=" + c.args[0]}, c.args[1:]...)
		if code, out, stderr := headway(args...); code != c.code || !strings.Contains(out+stderr, c.want) {
			t.Errorf("%q: exit %d, want %d and %q: %s%s", args, code, c.code, c.want, out, stderr)
		}
	}
	if code, out, stderr := headway("top", "--once", "--admin", mutual, ca, cert, key); code != exitOK || !strings.Contains(out, "members 1") {
		t.Errorf("top: exit %d: %s%s", code, out, stderr)
	}
	misnamed := x509.HostnameError{Certificate: a.Client("admin").Certificates[0].Leaf, Host: "elsewhere"}
	if err := (&listener{base: &url.URL{Scheme: "https", Host: "elsewhere"}}).unreached(misnamed); !isUsage(err) || !strings.Contains(err.Error(), "not elsewhere; write --admin with a name") {
		t.Errorf("a certificate of another name: %v", err)
	}
}
