package stage

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay stands before a port, that of one replica's gossip or of Redis, and
// passes on what comes to it over UDP and TCP, until it is cut. It hides nobody:
// members name themselves inside their messages.
type relay struct {
	addr   string // where others reach what is behind it
	target string
	broken atomic.Bool
	slow   atomic.Int64 // what answers over TCP are late by, in ns
	tcp    net.Listener
	udp    net.PacketConn
	out    net.Conn // UDP to the replica
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil once closed
}

// maxDatagram is more than gossip ever sends in one.
const maxDatagram = 64 << 10

// startRelay listens on a free port for both protocols.
func startRelay(target string) (*relay, error) {
	r := &relay{target: target, conns: map[net.Conn]bool{}}
	var err error
	for range 8 { // the same number may be taken for the other protocol
		if r.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, err
		}
		if r.udp, err = net.ListenPacket("udp", r.tcp.Addr().String()); err == nil {
			break
		}
		r.tcp.Close()
	}
	if err != nil {
		return nil, err
	}
	if r.out, err = net.Dial("udp", target); err != nil {
		return nil, err
	}
	r.addr = r.tcp.Addr().String()
	r.wg.Go(r.packets)
	r.wg.Go(r.streams)
	return r, nil
}

// cut stops everything that passes, and what has been passing; heal undoes it
// for what comes next.
func (r *relay) cut() {
	r.broken.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		c.Close()
	}
}

func (r *relay) heal() { r.broken.Store(false) }

// delay makes answers over TCP late from now on; 0 undoes it.
func (r *relay) delay(by time.Duration) { r.slow.Store(int64(by)) }

// lateness is what an answer that comes now is late by.
func (r *relay) lateness() time.Duration { return time.Duration(r.slow.Load()) }

// packets passes datagrams on. Answers do not come back this way: members
// answer to the address that the other one advertises, which is its relay.
func (r *relay) packets() {
	buf := make([]byte, maxDatagram)
	for {
		n, _, err := r.udp.ReadFrom(buf)
		if err != nil {
			return
		}
		if !r.broken.Load() {
			r.out.Write(buf[:n]) // lost like any datagram if nobody listens
		}
	}
}

// streams accepts connections while the relay lives.
func (r *relay) streams() {
	for {
		in, err := r.tcp.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.stream(in) })
	}
}

// stream passes one connection on, both ways.
func (r *relay) stream(in net.Conn) {
	defer in.Close()
	if r.broken.Load() {
		return
	}
	out, err := net.DialTimeout("tcp", r.target, time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	if !r.hold(in, out) {
		return
	}
	defer r.drop(in, out)
	var both sync.WaitGroup
	both.Go(func() {
		io.Copy(out, in)
		out.(*net.TCPConn).CloseWrite()
	})
	both.Go(func() {
		passOn(in, out, r.lateness)
		in.(*net.TCPConn).CloseWrite()
	})
	both.Wait()
}

// hold notes open connections for cut and close, unless it is too late.
func (r *relay) hold(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	for _, c := range conns {
		r.conns[c] = true
	}
	return true
}

func (r *relay) drop(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.conns, c)
	}
}

// close ends it.
func (r *relay) close() {
	r.tcp.Close()
	r.udp.Close()
	r.out.Close()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.wg.Wait()
}
