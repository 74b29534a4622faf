package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Defaults of Options.
const (
	DefaultTimeout       = 50 * time.Millisecond
	DefaultLeaseTTL      = 10 * time.Second
	DefaultProbeInterval = 100 * time.Millisecond
)

// Mode is how the servers of a Redis belong together.
type Mode string

const (
	ModeStandalone Mode = "standalone" // one server, or one address that leads to it
	ModeSentinel   Mode = "sentinel"   // a master and its replicas, watched by sentinels
	ModeCluster    Mode = "cluster"    // Redis Cluster
)

// Options describe the Redis of one replica. Only Address is needed, or what
// Mode asks for in its place.
type Options struct {
	Mode    Mode   // empty: ModeStandalone
	Address string // host:port of a standalone server
	// Addresses are the sentinels, or some nodes of the cluster, host:port each.
	// One that answers is enough; the rest of a cluster is learned from it.
	Addresses []string
	Layout    Layout // empty: LayoutSingle; LayoutTenant needs no cluster, but helps only there

	Username string // of the servers that keep data; empty: the default user
	Password string
	Database int // ≥ 0; a cluster has only 0
	// SentinelMaster is the name under which sentinels know the master; the other
	// two are the sentinels' own user and password.
	SentinelMaster, SentinelUsername, SentinelPassword string

	TLS bool // of servers and sentinels; false: plain text
	// TLSConfig refines TLS, e.g. with a private authority. Nil checks the
	// servers' certificates against the system's authorities, or as TLSFiles say.
	TLSConfig *tls.Config
	TLSFiles  TLSFiles

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
	Registerer prometheus.Registerer // one for each Store; nil: metrics are kept but not exposed
	// DialCtxFn replaces the TCP (and TLS) dialer, e.g. by an in-memory pipe. It
	// must respect ctx, which ends after 200 ms or four budgets.
	DialCtxFn func(ctx context.Context, address string) (net.Conn, error)
}

// TLSFiles name PEM files that are read once, by New. Empty ones are not used.
type TLSFiles struct {
	CA        string // authorities of the servers, in place of the system's
	Cert, Key string // this client's certificate and its key: both or none
	// ServerName is what the servers' certificates must be made out to; empty: the
	// host of the address that is dialled.
	ServerName string
}

// config reads the files.
func (f TLSFiles) config() (*tls.Config, error) {
	conf := &tls.Config{ServerName: f.ServerName, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("redisstore: tls ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("redisstore: tls ca %s: no certificate in it, want PEM", f.CA)
		}
	}
	if f.Cert != "" || f.Key != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("redisstore: tls cert %q and key %q: %w", f.Cert, f.Key, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// withDefaults returns a complete copy, or all mistakes joined.
func (o Options) withDefaults() (Options, error) {
	o.Mode, o.Layout = cmp.Or(o.Mode, ModeStandalone), cmp.Or(o.Layout, LayoutSingle)
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
	err := o.validate()
	if o.TLS && o.TLSConfig == nil {
		var unreadable error
		if o.Mode == ModeStandalone && o.TLSFiles.ServerName == "" {
			o.TLSFiles.ServerName, _, _ = net.SplitHostPort(o.Address)
		}
		o.TLSConfig, unreadable = o.TLSFiles.config()
		err = errors.Join(err, unreadable)
	}
	return o, err
}

// validate names every mistake with its value and what is wanted instead.
func (o Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("redisstore: "+format, args...)) }
	o.validateMode(bad)
	if o.Layout != LayoutSingle && o.Layout != LayoutTenant {
		bad("layout %q: want %s or %s", o.Layout, LayoutSingle, LayoutTenant)
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
	if !o.TLS && (o.TLSConfig != nil || o.TLSFiles != TLSFiles{}) {
		bad("a TLS configuration without TLS: set TLS, or leave it out")
	}
	if o.TLSConfig != nil && o.TLSFiles != (TLSFiles{}) {
		bad("a TLS configuration and TLS files: set one of them")
	}
	return errors.Join(errs...)
}

// validateMode checks what depends on Mode.
func (o Options) validateMode(bad func(format string, args ...any)) {
	addresses := o.Addresses
	switch o.Mode {
	case ModeStandalone:
		addresses = []string{o.Address}
		if len(o.Addresses) > 0 {
			bad("addresses %q in mode %s: want address alone", o.Addresses, o.Mode)
		}
	case ModeSentinel, ModeCluster:
		if o.Address != "" {
			bad("address %q in mode %s: want addresses", o.Address, o.Mode)
		}
		if len(addresses) == 0 {
			bad("no addresses in mode %s: want host:port of at least one", o.Mode)
		}
	default:
		bad("mode %q: want %s, %s or %s", o.Mode, ModeStandalone, ModeSentinel, ModeCluster)
		return
	}
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			bad("address %q: want host:port: %w", address, err)
		}
	}
	switch {
	case o.Mode == ModeSentinel && o.SentinelMaster == "":
		bad("no sentinel master in mode %s: want the name that sentinels know it by", o.Mode)
	case o.Mode != ModeSentinel && o.SentinelMaster+o.SentinelUsername+o.SentinelPassword != "":
		bad("sentinel settings in mode %s: want mode %s, or none of them", o.Mode, ModeSentinel)
	}
	if o.Mode == ModeCluster && o.Database != 0 {
		bad("database %d in mode %s: a cluster has only 0", o.Database, o.Mode)
	}
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}
