package gossip

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/fleet"
)

// Defaults of Config, used where a field is zero.
const (
	DefaultRejoinMin     = 8 * time.Second
	DefaultRejoinMax     = 16 * time.Second
	DefaultDirectMembers = 64
)

// Config describes one node. Bind is required, the rest has defaults.
type Config struct {
	// Name identifies the replica in the fleet and must be unique in it, at most
	// 128 bytes. Empty: host name, process id and random digits. With a fixed
	// name a replica that crashed and comes back at another address is let in
	// only after the others have declared its former life dead.
	Name string
	// Incarnation tells lives of one name apart. Zero: random.
	Incarnation uint64

	// Bind is the "host:port" to listen on, UDP and TCP; port 0 picks a free one,
	// an empty host is all interfaces.
	Bind string
	// Advertise is the "host:port" that others reach this node at, if that is not
	// Bind. Port 0 or none stands for the bound one.
	Advertise string
	// Join are the "host:port" of other replicas, or of names that resolve to
	// them. It may contain this replica itself.
	Join []string
	// Registry tells of replicas besides those of Join, which may then be empty: it
	// writes down for a minute or so how this node is reached, and returns all
	// "host:port" that stand, of whoever did so. It is called before each attempt to
	// reach others, by one goroutine, and may block until ctx ends. Nil: there is none.
	Registry func(ctx context.Context, self string) ([]string, error)
	// Keys encrypt and authenticate all gossip: each of 16, 24 or 32 bytes. The
	// first encrypts, all decrypt, so a fleet moves to another key by adding it
	// last everywhere, then putting it first everywhere, then removing the old.
	// Without keys anybody who can send to Bind can distort estimates.
	Keys [][]byte

	// Interval between digests. Zero: fleet.Interval. A view is fresh below
	// fleet.FreshFor, so more than a third of that makes it flicker.
	Interval time.Duration
	// RejoinMin and RejoinMax bound the pause between attempts to reach
	// configured addresses that are not members; each pause is random between
	// them, so that a fleet does not knock in step. Shorter heals a cut sooner
	// and asks the resolver more often.
	RejoinMin, RejoinMax time.Duration
	// DirectMembers is the largest fleet, and beyond it the number of members,
	// that one digest is sent straight to. Zero: 64.
	DirectMembers int

	Build      string // version of the program, for the digest
	ConfigHash string // short hash of the configuration, for the digest

	// Transport replaces sockets, for tests; Bind is then not used. It must be
	// the node's own: Close shuts it down.
	Transport  memberlist.Transport
	Logger     *slog.Logger          // nil: slog.Default()
	Registerer prometheus.Registerer // nil: metrics stay private
}

// Validate reports every mistake at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("gossip: "+format, args...)) }
	if len(c.Name) > fleet.MaxName {
		bad("name of %d bytes, at most %d", len(c.Name), fleet.MaxName)
	}
	if c.Transport == nil {
		if _, _, err := splitAddr(c.Bind); err != nil {
			bad("bind: %w", err)
		}
	}
	if c.Advertise != "" {
		if host, _, err := splitAddr(c.Advertise); err != nil || host == "" {
			bad("advertise %q is not host:port", c.Advertise)
		}
	}
	for _, a := range c.Join {
		if host, port, err := splitAddr(a); err != nil || host == "" || port == 0 {
			bad("join: %q is not host:port", a)
		}
	}
	for i, k := range c.Keys {
		if err := memberlist.ValidateKey(k); err != nil {
			bad("key %d has %d bytes, want 16, 24 or 32", i+1, len(k))
		}
	}
	if c.Interval < 0 || c.RejoinMin < 0 || c.RejoinMax < c.RejoinMin || c.DirectMembers < 0 {
		bad("interval %v, rejoin %v to %v or direct members %d out of range", c.Interval, c.RejoinMin, c.RejoinMax, c.DirectMembers)
	}
	return errors.Join(errs...)
}

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	if c.Name == "" {
		host, _ := os.Hostname() // an empty host name does no harm
		c.Name = fmt.Sprintf("%.64s-%d-%s", host, os.Getpid(), hex.EncodeToString(random(4)))
	}
	if c.Incarnation == 0 {
		c.Incarnation = binary.LittleEndian.Uint64(random(8)) >> 1 // leaves room to go above
	}
	if c.Interval == 0 {
		c.Interval = fleet.Interval
	}
	if c.RejoinMin == 0 && c.RejoinMax == 0 {
		c.RejoinMin, c.RejoinMax = DefaultRejoinMin, DefaultRejoinMax
	}
	if c.DirectMembers == 0 {
		c.DirectMembers = DefaultDirectMembers
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return b
}

// memberlist translates c.
func (c Config) memberlist(d *delegate) (*memberlist.Config, error) {
	m := memberlist.DefaultLANConfig()
	m.Name = c.Name
	m.Transport = c.Transport
	m.ProbeInterval, m.ProbeTimeout = 500*time.Millisecond, 250*time.Millisecond
	// A join that hangs holds up the next ones; a LAN answers within this.
	m.TCPTimeout = 2 * time.Second
	// Digests are small and change in every byte: compressing them is all cost.
	m.EnableCompression = false
	// A name whose owner was declared dead is free at once.
	m.DeadNodeReclaimTime = time.Nanosecond
	m.Delegate, m.Events, m.Conflict = d, d, d
	m.LogOutput = logWriter{c.Logger}
	if len(c.Keys) > 0 {
		ring, err := memberlist.NewKeyring(c.Keys, c.Keys[0])
		if err != nil {
			return nil, fmt.Errorf("gossip: keys: %w", err)
		}
		m.Keyring = ring
	}
	if c.Transport == nil {
		ip, port, err := localIP(c.Bind)
		if err != nil {
			return nil, fmt.Errorf("gossip: bind: %w", err)
		}
		m.BindAddr, m.BindPort, m.AdvertisePort = ip, port, port
	}
	if c.Advertise != "" {
		ip, port, err := localIP(c.Advertise)
		if err != nil {
			return nil, fmt.Errorf("gossip: advertise: %w", err)
		}
		m.AdvertiseAddr = ip
		if port != 0 {
			m.AdvertisePort = port
		}
	}
	return m, nil
}

// localIP resolves the host of "host:port", once: it is an address of this host.
func localIP(addr string) (ip string, port int, err error) {
	host, port, err := splitAddr(addr)
	if err != nil {
		return "", 0, err
	}
	if host == "" {
		return "0.0.0.0", port, nil
	}
	if net.ParseIP(host) != nil {
		return host, port, nil
	}
	ips, err := net.LookupHost(host)
	if err != nil {
		return "", 0, err
	}
	return ips[0], port, nil
}

// splitAddr parses "host:port" with a numeric port.
func splitAddr(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", addr)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: port is not a number up to 65535", addr)
	}
	return host, int(n), nil
}
