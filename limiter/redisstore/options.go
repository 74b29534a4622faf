package redisstore

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of Options.
const (
	DefaultTimeout       = 50 * time.Millisecond
	DefaultLeaseTTL      = 10 * time.Second
	DefaultProbeInterval = 100 * time.Millisecond
)

// Options describe the Redis of one replica. Only Address is needed.
type Options struct {
	Address  string // host:port of a standalone server
	Username string // empty: the default user
	Password string
	Database int  // ≥ 0
	TLS      bool // false: plain text
	// TLSConfig refines TLS, e.g. with a private authority. Nil checks the
	// server's certificate against the system's authorities.
	TLSConfig *tls.Config

	// Timeout is the one budget of all store calls of an Admit or Peek,
	// resends included. Zero means DefaultTimeout. Waking a goroutine takes a
	// few ms on a busy machine, so budgets below 10 ms only refuse more.
	Timeout time.Duration
	// LeaseTTL is how long the slots of a crashed replica stay taken, in whole
	// ms, at least 100 ms. Zero means DefaultLeaseTTL. Slots are renewed at 3/10
	// of it, so that two renewals may be lost.
	LeaseTTL time.Duration
	// ProbeInterval is how long nothing may succeed before a probe is sent.
	// Zero means DefaultProbeInterval: an idle replica then costs 10 cheap
	// calls a second and notices an outage within 0.5 s.
	ProbeInterval time.Duration
	// Incarnation names this process's life among the fleet's. It must never be
	// used again by another. Zero: 64 random bits.
	Incarnation uint64

	Logger     *slog.Logger          // nil: slog.Default()
	Registerer prometheus.Registerer // nil: metrics are kept but not exposed
	// DialCtxFn replaces the TCP (and TLS) dialer, e.g. by an in-memory pipe. It
	// must respect ctx, which ends after 200 ms or four budgets.
	DialCtxFn func(ctx context.Context, address string) (net.Conn, error)
}

// withDefaults returns a complete copy, or all mistakes joined.
func (o Options) withDefaults() (Options, error) {
	o.Timeout = orDefault(o.Timeout, DefaultTimeout)
	o.LeaseTTL = orDefault(o.LeaseTTL, DefaultLeaseTTL)
	o.ProbeInterval = orDefault(o.ProbeInterval, DefaultProbeInterval)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Incarnation == 0 {
		var b [8]byte
		rand.Read(b[:])
		o.Incarnation = binary.NativeEndian.Uint64(b[:])
	}
	if o.TLS && o.TLSConfig == nil {
		host, _, _ := net.SplitHostPort(o.Address)
		o.TLSConfig = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	return o, o.validate()
}

// validate names every mistake with its value and what is wanted instead.
func (o Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("redisstore: "+format, args...)) }
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		bad("address %q: want host:port: %w", o.Address, err)
	}
	if o.Database < 0 {
		bad("database %d: want 0 or more", o.Database)
	}
	if o.Timeout < 0 {
		bad("timeout %v: want more than 0", o.Timeout)
	}
	if o.LeaseTTL < 100*time.Millisecond {
		bad("lease ttl %v: want at least 100ms", o.LeaseTTL)
	}
	if o.ProbeInterval < 0 {
		bad("probe interval %v: want more than 0", o.ProbeInterval)
	}
	if !o.TLS && o.TLSConfig != nil {
		bad("a TLS configuration without TLS: set TLS, or leave it out")
	}
	return errors.Join(errs...)
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}
