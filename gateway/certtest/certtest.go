package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// lifetime is that of a certificate; it begins as long before now as it ends after.
const lifetime = time.Hour

// Authority signs certificates. Its own is <name>.pem in its folder.
type Authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority with a folder of its own.
func New(t testing.TB, name string) *Authority {
	a := &Authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.make(name, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(lifetime),
	})
	return a
}

// Issue writes <name>.pem and <name>.key, good for servers at 127.0.0.1 and localhost
// and for clients. Issued again, they are replaced.
func (a *Authority) Issue(name string) { a.IssueUntil(name, time.Now().Add(lifetime)) }

// IssueUntil is Issue of a certificate that ends then.
func (a *Authority) IssueUntil(name string, end time.Time) {
	a.t.Helper()
	a.make(name, &x509.Certificate{
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotAfter:    end,
	})
}

// Path is that of a file in the folder.
func (a *Authority) Path(file string) string { return filepath.Join(a.dir, file) }

// Client trusts the authority, and presents the certificate of that name; empty: none.
func (a *Authority) Client(name string) *tls.Config {
	a.t.Helper()
	conf := &tls.Config{RootCAs: x509.NewCertPool()}
	conf.RootCAs.AddCert(a.cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.Path(name+".pem"), a.Path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf
}

// make signs c, or has it sign itself if it is the first, and writes its files.
func (a *Authority) make(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	a.must(err)
	c.Subject = pkix.Name{CommonName: name}
	c.NotBefore = c.NotAfter.Add(-2 * lifetime)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	a.must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	a.must(err)
	a.write(name+".key", "PRIVATE KEY", secret)
	a.write(name+".pem", "CERTIFICATE", der)
	made, err := x509.ParseCertificate(der)
	a.must(err)
	return made, key
}

// write replaces a file as a whole.
func (a *Authority) write(file, kind string, data []byte) {
	a.t.Helper()
	next := a.Path("." + file)
	a.must(os.WriteFile(next, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
	a.must(os.Rename(next, a.Path(file)))
}

func (a *Authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}
