package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// ListenerTLS are the PEM files of a listener. Without a certificate it speaks plain
// text.
type ListenerTLS struct {
	Cert     string `yaml:"cert" help:"PEM file with the certificate, then those that lead to its authority; read again when it changes; empty: no TLS"`
	Key      string `yaml:"key" help:"PEM file with the private key of the certificate; read again when it changes"`
	ClientCA string `yaml:"client_ca" help:"PEM file with the authorities one of which has to have signed the certificate of each client; empty: clients need none"`
}

// On reports whether the listener speaks TLS.
func (t ListenerTLS) On() bool { return t != ListenerTLS{} }

// Read reads the files of the section at path, for TLS 1.2 and later; which protocols
// are spoken inside is the caller's to add. The error is an [*Error] with every file
// that is of no use.
func (t ListenerTLS) Read(path string) (*tls.Config, error) {
	var problems []Problem
	conf := t.read(func(field, fix, format string, args ...any) {
		problems = append(problems, Problem{Path: path + "." + field, What: fmt.Sprintf(format, args...), Fix: fix})
	})
	if len(problems) > 0 {
		return nil, &Error{Problems: problems}
	}
	return conf, nil
}

// read is Read, and tells wrong each mistake.
func (t ListenerTLS) read(wrong func(field, fix, format string, args ...any)) *tls.Config {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	cert, key := t.certificates("cert", t.Cert, wrong), t.file("key", t.Key, wrong)
	if cert != nil && key != nil {
		if pair, err := tls.X509KeyPair(cert, key); err != nil {
			wrong("key", "write the private key that the certificate was made for, in PEM", "%q does not go with %q (%v)", t.Key, t.Cert, err)
		} else {
			conf.Certificates = []tls.Certificate{pair}
		}
	}
	if authorities := t.certificates("client_ca", t.ClientCA, wrong); authorities != nil {
		conf.ClientAuth, conf.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		conf.ClientCAs.AppendCertsFromPEM(authorities)
	}
	return conf
}

// certificates reads a file that has to have some; nil: there is none, or it has not.
func (t ListenerTLS) certificates(field, path string, wrong func(field, fix, format string, args ...any)) []byte {
	data := t.file(field, path, wrong)
	if data != nil && !x509.NewCertPool().AppendCertsFromPEM(data) {
		wrong(field, "write the path of a PEM file with one", "there is no certificate in %q", path)
		return nil
	}
	return data
}

// file reads a file; nil: there is none, or it cannot be read.
func (t ListenerTLS) file(field, path string, wrong func(field, fix, format string, args ...any)) []byte {
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		wrong(field, "write the path of a PEM file, from where headway is started", "there is no file %q", path)
	case err != nil:
		wrong(field, "write the path of a file that headway may read", "%v", err)
	}
	return data
}

// listenerTLS checks the TLS section at path: a replica could not start with files
// that are of no use, and would take no new ones.
func (k *checker) listenerTLS(at string, t ListenerTLS) {
	for _, f := range [...]string{"cert", "key", "client_ca"} {
		if k.unread(at + "." + f) {
			return // told already
		}
	}
	switch {
	case !t.On():
		return
	case t.Cert == "" && t.Key == "":
		k.wrong(at+".client_ca", "set "+at+".cert and key too", "clients present certificates to a listener that has one itself")
		return
	case t.Key == "":
		k.wrong(at+".cert", "set "+at+".key too", "a certificate is of no use without its private key")
		return
	case t.Cert == "":
		k.wrong(at+".key", "set "+at+".cert too", "a private key is of no use without its certificate")
		return
	}
	conf := t.read(func(field, fix, format string, args ...any) { k.wrong(at+"."+field, fix, format, args...) })
	if len(conf.Certificates) > 0 { // else told
		if end := conf.Certificates[0].Leaf.NotAfter; time.Now().After(end) {
			k.warn(at+".cert", "renew it", "has expired on %s: clients will refuse it", end.UTC().Format(time.DateOnly))
		}
	}
}
