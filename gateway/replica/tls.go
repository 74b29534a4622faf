package replica

import (
	"crypto/tls"
	"slices"
	"sync/atomic"

	"github.com/headway-limiter/headway/gateway/config"
)

// encryption is TLS of one listener. Handshakes take the files as they were read last;
// connections that are open have had theirs and go on.
type encryption struct {
	path      string // of its section in the configuration
	files     config.ListenerTLS
	protocols []string // by ALPN, the one that is preferred first
	conf      atomic.Pointer[tls.Config]
}

// openTLS reads the files of a listener; without any there is no TLS, and the result
// is nil.
func (r *Replica) openTLS(path string, files config.ListenerTLS, protocols ...string) (*tls.Config, error) {
	if !files.On() {
		return nil, nil
	}
	e := &encryption{path: path, files: files, protocols: protocols}
	for _, file := range [...]string{files.Cert, files.Key, files.ClientCA} {
		if file != "" && !slices.ContainsFunc(r.reloads.files, func(w *watch) bool { return w.file == file }) {
			w := &watch{file: file}
			w.changed() // before it is read, so that no change is missed
			r.reloads.files = append(r.reloads.files, w)
		}
	}
	conf, err := e.read()
	if err != nil {
		return nil, err
	}
	e.conf.Store(conf)
	r.encrypted = append(r.encrypted, e)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return e.conf.Load(), nil },
	}, nil
}

// encrypt has a server speak TLS, if there are files for it. HTTP/2 is preferred;
// realtime sessions come by HTTP/1.1.
func (r *Replica) encrypt(s *server, path string, files config.ListenerTLS) (err error) {
	s.TLSConfig, err = r.openTLS(path, files, "h2", "http/1.1")
	s.encrypted = s.TLSConfig != nil
	return err
}

// read reads the files again; what is in force stays.
func (e *encryption) read() (*tls.Config, error) {
	conf, err := e.files.Read(e.path)
	if err != nil {
		return nil, err
	}
	conf.NextProtos = e.protocols
	return conf, nil
}

// readTLS reads the files of all listeners again. They are in force once adopt is
// called; an error is of any of them, and then nothing has changed.
func (r *Replica) readTLS() (adopt func(), err error) {
	next := make([]*tls.Config, len(r.encrypted))
	for i, e := range r.encrypted {
		if next[i], err = e.read(); err != nil {
			return nil, err
		}
	}
	return func() {
		for i, e := range r.encrypted {
			e.conf.Store(next[i])
		}
	}, nil
}
