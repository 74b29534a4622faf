package storetest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Bubble is a Redis in memory for tests inside a testing/synctest bubble: its
// TIME and its expiry follow the bubble's clock, and it opens no socket. Give
// each store a Link of its own, so that they can fail apart:
//
//	b := storetest.NewBubble(t)
//	store, err := redisstore.New(redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: b.Link().Dial})
type Bubble struct {
	// Redis is the server, for Check, SetError and the like.
	Redis *miniredis.Miniredis

	mu    sync.Mutex
	links []*Link
}

// BubbleAddress is an address that passes validation; Link.Dial ignores it.
const BubbleAddress = "redis.bubble:6379"

// NewBubble makes an empty server. Call it inside the bubble, and let stores be
// closed by the end of the test; a bubble must not end with goroutines blocked.
func NewBubble(t testing.TB) *Bubble {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	b := &Bubble{Redis: m}
	t.Cleanup(b.end)
	return b
}

// end lets every goroutine of links and server go.
func (b *Bubble) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.links {
		l.Thaw()
		l.Unmute()
		l.Cut()
	}
	b.Redis.Close()
}

// Link is one client's way to the server. Its methods are safe for concurrent
// use.
type Link struct {
	bubble *Bubble

	mu     sync.Mutex
	thawed *sync.Cond
	frozen bool
	muted  bool
	cut    bool
	conns  map[*pipe]struct{}
}

// Link returns a way of its own to the server.
func (b *Bubble) Link() *Link {
	l := &Link{bubble: b, conns: map[*pipe]struct{}{}}
	l.thawed = sync.NewCond(&l.mu)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.links = append(b.links, l)
	return l
}

var errCut = errors.New("storetest: the link is cut")

// Dial connects; it has the type of redisstore.Options.DialCtxFn.
func (l *Link) Dial(context.Context, string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errCut
	}
	c, err := l.bubble.Redis.Dial()
	if err != nil {
		return nil, err
	}
	p := &pipe{Conn: c, link: l}
	l.conns[p] = struct{}{}
	go p.pump()
	return p, nil
}

// Cut closes all connections and refuses new ones, until Mend.
func (l *Link) Cut() {
	l.mu.Lock()
	l.cut = true
	open := l.conns
	l.conns = map[*pipe]struct{}{}
	l.mu.Unlock()
	for p := range open {
		p.Close()
	}
}

// Mend ends Cut.
func (l *Link) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

// Freeze holds back everything sent, as a stopped server does: connections
// stay open, nothing is read. Thaw delivers it, also what was sent over
// connections that the client has closed meanwhile.
func (l *Link) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = true
}

// Thaw ends Freeze.
func (l *Link) Thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = false
	l.thawed.Broadcast()
}

// Mute holds back every reply; the server reads and executes as usual.
func (l *Link) Mute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted = true
}

// Unmute ends Mute.
func (l *Link) Unmute() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.muted = false
	l.thawed.Broadcast()
}

// pipe is a connection whose writes never wait for the server to read. A plain
// net.Pipe would deadlock a client that sends a batch before it reads.
type pipe struct {
	net.Conn
	link *Link

	// Guarded by link.mu.
	sent   []byte
	closed bool
}

// Write queues a copy.
func (p *pipe) Write(data []byte) (int, error) {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	if p.closed {
		return 0, net.ErrClosed
	}
	p.sent = append(p.sent, data...)
	p.link.thawed.Broadcast()
	return len(data), nil
}

// Close lets the client see a closed connection. While frozen, the server's
// end stays open and unread.
func (p *pipe) Close() error {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	delete(p.link.conns, p)
	p.closed = true
	p.link.thawed.Broadcast()
	if !p.link.frozen {
		return p.Conn.Close()
	}
	return nil
}

// Read ends with the client's end, also while the server's stays open.
func (p *pipe) Read(data []byte) (int, error) {
	n, err := p.Conn.Read(data)
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	for p.link.muted && !p.closed {
		p.link.thawed.Wait()
	}
	if p.closed {
		return 0, net.ErrClosed
	}
	return n, err
}

// pump delivers what was written. It ends with the connection.
func (p *pipe) pump() {
	p.link.mu.Lock()
	defer p.link.mu.Unlock()
	for {
		for p.link.frozen || (len(p.sent) == 0 && !p.closed) {
			p.link.thawed.Wait()
		}
		data, last := p.sent, p.closed
		p.sent = nil
		p.link.mu.Unlock()
		if len(data) > 0 {
			p.Conn.Write(data)
		}
		if last {
			p.Conn.Close()
		}
		p.link.mu.Lock()
		if last {
			return
		}
	}
}
