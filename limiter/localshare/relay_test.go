package localshare_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// relay passes bytes on to a server, and its replies back with a delay.
type relay struct {
	listener net.Listener
	target   string
	delay    atomic.Int64 // ns
	all      sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// newRelay listens until the end of the test.
func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, target: target}
	r.all.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		r.all.Wait()
	})
	return r
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			client.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, client, server)
		r.mu.Unlock()
		r.all.Go(func() {
			io.Copy(server, client)
			server.Close()
		})
		r.all.Go(func() { r.back(client, server) })
	}
}

// back carries replies. What is late does not hold up reading.
func (r *relay) back(client, server net.Conn) {
	type chunk struct {
		data []byte
		at   time.Time
	}
	late := make(chan chunk, 1<<16)
	r.all.Go(func() {
		defer client.Close()
		for c := range late {
			<-time.After(time.Until(c.at))
			if _, err := client.Write(c.data); err != nil {
				return
			}
		}
	})
	defer close(late)
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			late <- chunk{append([]byte(nil), buf[:n]...), time.Now().Add(time.Duration(r.delay.Load()))}
		}
		if err != nil {
			return
		}
	}
}
