package redisstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// aclRules is what a user of Headway needs; README.md tells operators the same.
const aclRules = "~hw:* resetchannels -@all +@read +@write +@connection +evalsha +script|load +time +asking +cluster|nodes"

// authority makes certificates in dir, for one test.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes its own certificate, ca.pem.
func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes <name>.pem and <name>.key.
func (a *authority) issue(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	c.Subject = pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "EC PRIVATE KEY", secret)
	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return made, key
}

func (a *authority) write(file, kind string, data []byte) {
	if err := os.WriteFile(a.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// TestTLS: a server with a private authority that wants client certificates and
// a user with few rights. Whoever lacks one of them is not served.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue("server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"redis.test"}})
	a.issue("client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	args := []string{
		"--tls-cert-file", a.path("server.pem"), "--tls-key-file", a.path("server.key"),
		"--tls-ca-cert-file", a.path("ca.pem"), "--tls-auth-clients", "yes",
		"--user", "default", "off", "--user", "headway", "on", ">secret",
	}
	server := redisproc.StartTLS(t, append(args, strings.Fields(aclRules)...)...)
	good := redisstore.Options{
		Address: server.Addr(), TLS: true, Username: "headway", Password: "secret", Timeout: patient,
		TLSFiles: redisstore.TLSFiles{CA: a.path("ca.pem"), Cert: a.path("client.pem"), Key: a.path("client.key")},
	}
	s := newStore(t, good)
	storetest.Eventually(t, healing, "usable", usable(s))
	k := oneTake(100, 5)
	mustAdmit(t, s, k)
	v, err := s.Turns(t.Context(), turnsAt(k.Charges[0]))
	if err != nil || len(v.Bids) != 1 {
		t.Errorf("turns: got %+v, %v", v, err)
	}
	named := good
	named.TLSFiles.ServerName = "redis.test"
	mustAdmit(t, newStore(t, named), k)

	for name, spoil := range map[string]func(*redisstore.Options){
		"wrong password":        func(o *redisstore.Options) { o.Password = "guess" },
		"no client certificate": func(o *redisstore.Options) { o.TLSFiles.Cert, o.TLSFiles.Key = "", "" },
		"unknown authority":     func(o *redisstore.Options) { o.TLSFiles.CA = "" },
		"another name":          func(o *redisstore.Options) { o.TLSFiles.ServerName = "other.test" },
		"no TLS":                func(o *redisstore.Options) { o.TLS, o.TLSFiles = false, redisstore.TLSFiles{} },
	} {
		o := good
		o.Timeout = budget
		spoil(&o)
		s := newStore(t, o)
		if v, err := s.Admit(context.Background(), k); err == nil {
			t.Errorf("%s: got %+v, want unavailable", name, v)
		} else {
			t.Logf("%s: %v", name, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		s.Close(gone) // there is nobody to say goodbye to
	}
}
