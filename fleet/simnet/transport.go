package simnet

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// packetBuffer is how many packets a host may leave unread before more are
	// dropped, like a socket's receive buffer.
	packetBuffer = 1024
	// backlog is how many streams may wait to be accepted.
	backlog = 128
)

// Transport is one host of a network, as memberlist wants it.
type Transport struct {
	net     *Network
	addr    string
	ip      net.IP
	port    int
	packets chan *memberlist.Packet
	streams chan net.Conn

	mu   sync.Mutex
	open []*stream // ends of streams at this host
	down bool
}

var _ memberlist.Transport = (*Transport)(nil)

func newTransport(n *Network, ap netip.AddrPort) *Transport {
	return &Transport{
		net: n, addr: ap.String(), ip: ap.Addr().AsSlice(), port: int(ap.Port()),
		packets: make(chan *memberlist.Packet, packetBuffer),
		streams: make(chan net.Conn, backlog),
	}
}

// Addr is the address that the transport was made for.
func (t *Transport) Addr() string { return t.addr }

// FinalAdvertiseAddr implements memberlist.Transport. The address is the host's
// own whatever is asked for.
func (t *Transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return t.ip, t.port, nil }

// PacketCh implements memberlist.Transport.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh implements memberlist.Transport.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo implements memberlist.Transport: it sends one packet and never blocks.
// Like UDP it reports no loss.
func (t *Transport) WriteTo(b []byte, to string) (time.Time, error) {
	now := time.Now()
	host, delay, ok := t.net.route(t.addr, to)
	if !ok || host == nil || t.gone() || t.net.drops() {
		t.net.lose()
		return now, nil
	}
	packet := &memberlist.Packet{Buf: slices.Clone(b), From: address(t.addr)}
	time.AfterFunc(delay, func() { t.arrive(host, packet) })
	return now, nil
}

// arrive puts a packet into host's buffer, unless it cannot get there any more.
func (t *Transport) arrive(host *Transport, p *memberlist.Packet) {
	if _, _, ok := t.net.route(t.addr, host.addr); ok && !host.gone() {
		p.Timestamp = time.Now()
		select {
		case host.packets <- p:
			return
		default:
		}
	}
	t.net.lose()
}

// DialTimeout implements memberlist.Transport. It takes a round trip when it
// succeeds, and the whole timeout when the other side cannot be reached.
func (t *Transport) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	host, delay, ok := t.net.route(t.addr, to)
	if !ok || t.gone() {
		<-time.After(timeout)
		return nil, t.dialError(to, os.ErrDeadlineExceeded)
	}
	<-time.After(min(2*delay, timeout))
	if host == nil || host.gone() {
		return nil, t.dialError(to, syscall.ECONNREFUSED)
	}
	a, b := net.Pipe()
	near, far := &stream{Conn: a, local: t, remote: host}, &stream{Conn: b, local: host, remote: t}
	if !t.hold(near) || !host.hold(far) {
		near.Close()
		return nil, t.dialError(to, syscall.ECONNREFUSED)
	}
	select {
	case host.streams <- far:
		return near, nil
	default: // the backlog is full
		near.Close()
		far.Close()
		return nil, t.dialError(to, syscall.ECONNREFUSED)
	}
}

func (t *Transport) dialError(to string, err error) error {
	return &net.OpError{Op: "dial", Net: "simnet", Source: address(t.addr), Addr: address(to), Err: err}
}

// Shutdown implements memberlist.Transport: the host vanishes from the network
// with all its streams. It may be called more than once.
func (t *Transport) Shutdown() error {
	t.net.detach(t)
	t.mu.Lock()
	t.down = true
	t.mu.Unlock()
	t.breakStreams(func(link) bool { return true })
	return nil
}

func (t *Transport) gone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.down
}

// hold notes an open stream; false when the host is gone.
func (t *Transport) hold(s *stream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.down {
		t.open = append(t.open, s)
	}
	return !t.down
}

func (t *Transport) release(s *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = slices.DeleteFunc(t.open, func(o *stream) bool { return o == s })
}

// breakStreams closes this host's ends of all streams on chosen links. The
// other ends see the end of the stream.
func (t *Transport) breakStreams(chosen func(link) bool) {
	t.mu.Lock()
	var broken []*stream
	for _, s := range t.open {
		if chosen(between(s.local.addr, s.remote.addr)) {
			broken = append(broken, s)
		}
	}
	t.mu.Unlock()
	for _, s := range broken {
		s.Close()
	}
}

// stream is one end of a pipe between two hosts.
type stream struct {
	net.Conn
	local, remote *Transport
}

func (s *stream) LocalAddr() net.Addr  { return address(s.local.addr) }
func (s *stream) RemoteAddr() net.Addr { return address(s.remote.addr) }

// Close implements net.Conn.
func (s *stream) Close() error {
	s.local.release(s)
	return s.Conn.Close()
}
