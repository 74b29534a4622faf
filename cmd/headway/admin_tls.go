package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
)

// adminFiles are the PEM files for a listener with TLS, as they are typed.
type adminFiles struct{ ca, cert, key string }

// client speaks to the listener at base. A file that would not be read is a mistake:
// who names it takes it for in force.
func (f adminFiles) client(base *url.URL) (*http.Client, error) {
	switch {
	case base.Scheme != "https" && f != (adminFiles{}):
		return nil, UsageError{fmt.Errorf("headway: --ca, --client-cert and --client-key are of no use without TLS: write --admin https://%s, or leave them out", base.Host)}
	case (f.cert == "") != (f.key == ""):
		return nil, UsageError{errors.New("headway: --client-cert and --client-key belong together: give both, or none")}
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, UsageError{fmt.Errorf("headway: --ca: %w", err)}
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, UsageError{fmt.Errorf("headway: --ca: there is no certificate in %s", f.ca)}
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, UsageError{fmt.Errorf("headway: --client-cert and --client-key: %w", err)}
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf}}, nil
}

// unreached says what an error without an answer means, and what to check.
func (l *listener) unreached(err error) error {
	var untrusted x509.UnknownAuthorityError
	var misnamed x509.HostnameError
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("connection refused: nothing listens on %s; --admin is the address of a replica's admin listener (server.admin_listen)", l.base.Host)
	case errors.Is(err, http.ErrSchemeMismatch):
		return UsageError{fmt.Errorf("headway: %s speaks plain HTTP: write --admin http://%s", l.base.Host, l.base.Host)}
	case errors.As(err, &untrusted):
		return UsageError{fmt.Errorf("%w; --ca names the file of the authority that signed the listener's certificate", err)}
	case errors.As(err, &misnamed):
		return UsageError{fmt.Errorf("%w; write --admin with a name or address that the listener's certificate is made out to", err)}
	case l.base.Scheme == "https" && (errors.As(err, &op) && op.Op == "remote error" || // an alert; what the listener closed may come first
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF)):
		return fmt.Errorf("%w; if the listener asks for certificates of clients (server.admin_tls.client_ca), --client-cert and --client-key name one that it knows", err)
	}
	return err
}

// wantsTLS reports whether an answer is that of a listener with TLS to plain HTTP, as
// net/http gives it.
func wantsTLS(status int, body []byte) bool {
	return status == http.StatusBadRequest && bytes.Contains(body, []byte("HTTP request to an HTTPS server"))
}
