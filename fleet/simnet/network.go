package simnet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Config describes every link of a network. The zero Config is an ideal one.
type Config struct {
	Seed    uint64
	Latency time.Duration // one way
	Jitter  time.Duration // added to Latency: uniform in [0, Jitter)
	Loss    float64       // chance of a packet to get lost, 0 to 1
}

// Network connects transports. It is safe for concurrent use.
type Network struct {
	mu    sync.Mutex
	cfg   Config
	rng   *rand.Rand
	hosts map[string]*Transport
	cuts  map[link]bool
	lost  int
}

// link is an unordered pair of addresses.
type link struct{ a, b string }

func between(a, b string) link {
	if b < a {
		a, b = b, a
	}
	return link{a, b}
}

// New makes a network. Inside a bubble it must be called in the bubble.
func New(cfg Config) *Network {
	return &Network{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0)),
		hosts: map[string]*Transport{}, cuts: map[link]bool{},
	}
}

// Listen attaches a host at addr, an IP address with port such as
// "10.0.0.1:7946". It fails if the address is in use.
func (n *Network) Listen(addr string) (*Transport, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fmt.Errorf("simnet: address %q: %w", addr, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[addr] != nil {
		return nil, fmt.Errorf("simnet: address %s is in use", addr)
	}
	t := newTransport(n, ap)
	n.hosts[addr] = t
	return t, nil
}

// Cut severs the link between two addresses in both directions, until Mend.
func (n *Network) Cut(a, b string) {
	n.mu.Lock()
	n.cuts[between(a, b)] = true
	n.mu.Unlock()
	n.sever(func(l link) bool { return l == between(a, b) })
}

// Partition cuts every link between the addresses in side and all others.
func (n *Network) Partition(side ...string) {
	in := map[string]bool{}
	for _, a := range side {
		in[a] = true
	}
	n.mu.Lock()
	for a := range in {
		for b := range n.hosts {
			if !in[b] {
				n.cuts[between(a, b)] = true
			}
		}
	}
	n.mu.Unlock()
	n.sever(func(l link) bool { return in[l.a] != in[l.b] })
}

// Mend restores every link.
func (n *Network) Mend() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cuts)
}

// SetLoss changes the chance of packets to get lost from now on.
func (n *Network) SetLoss(p float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Loss = p
}

// Lost is the number of packets that did not arrive so far, for whatever cause.
func (n *Network) Lost() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}

// sever breaks all open streams whose link is chosen.
func (n *Network) sever(chosen func(link) bool) {
	n.mu.Lock()
	hosts := make([]*Transport, 0, len(n.hosts))
	for _, t := range n.hosts {
		hosts = append(hosts, t)
	}
	n.mu.Unlock()
	for _, t := range hosts {
		t.breakStreams(chosen)
	}
}

// detach removes a host.
func (n *Network) detach(t *Transport) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[t.addr] == t {
		delete(n.hosts, t.addr)
	}
}

// route finds the host at to as seen from from, and how long it takes to get
// there. A severed link has ok false; a host that is not there is nil.
func (n *Network) route(from, to string) (host *Transport, delay time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delay = n.cfg.Latency
	if n.cfg.Jitter > 0 {
		delay += time.Duration(n.rng.Int64N(int64(n.cfg.Jitter)))
	}
	return n.hosts[to], delay, !n.cuts[between(from, to)]
}

// drops decides the fate of one packet by chance.
func (n *Network) drops() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rng.Float64() < n.cfg.Loss
}

func (n *Network) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost++
}

// address is a net.Addr of this network.
type address string

var _ net.Addr = address("")

func (address) Network() string  { return "simnet" }
func (a address) String() string { return string(a) }
