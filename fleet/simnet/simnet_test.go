package simnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const a, b, c = "10.0.0.1:7946", "10.0.0.2:7946", "[fd00::3]:7946"

func listen(t *testing.T, n *Network, addr string) *Transport {
	t.Helper()
	h, err := n.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// received empties a host's buffer.
func received(h *Transport) (got []string) {
	for {
		select {
		case p := <-h.PacketCh():
			got = append(got, fmt.Sprintf("%s from %s", p.Buf, p.From))
		default:
			return got
		}
	}
}

func TestPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Latency: 10 * time.Millisecond})
		from, to := listen(t, n, a), listen(t, n, c)
		buf := []byte("hello")
		sent, err := from.WriteTo(buf, c)
		if err != nil {
			t.Fatal(err)
		}
		copy(buf, "XXXXX") // the sender may reuse its buffer
		time.Sleep(10*time.Millisecond - time.Nanosecond)
		synctest.Wait()
		if got := received(to); got != nil {
			t.Errorf("%q arrived too early", got)
		}
		time.Sleep(time.Nanosecond)
		p := <-to.PacketCh()
		if string(p.Buf) != "hello" || p.From.String() != a || p.Timestamp.Sub(sent) != 10*time.Millisecond {
			t.Errorf("got %q from %v after %v", p.Buf, p.From, p.Timestamp.Sub(sent))
		}
		if ip, port, err := to.FinalAdvertiseAddr("1.2.3.4", 5); err != nil || ip.String() != "fd00::3" || port != 7946 {
			t.Errorf("advertises %v %d, %v", ip, port, err)
		}
	})
}

// TestPacketsThatDoNotArrive: nobody there, cut before, cut on the way, gone on the
// way, gone sender. None is an error, all are counted.
func TestPacketsThatDoNotArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Latency: 10 * time.Millisecond})
		from, to := listen(t, n, a), listen(t, n, b)
		send := func(what, addr string) {
			if _, err := from.WriteTo([]byte(what), addr); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		send("nobody there", c)
		n.Cut(b, a)
		send("cut", b)
		n.Mend()
		send("cut on the way", b)
		n.Cut(a, b)
		time.Sleep(20 * time.Millisecond)
		n.Mend()
		send("arrives", b)
		time.Sleep(20 * time.Millisecond)
		if got := received(to); len(got) != 1 || got[0] != "arrives from "+a {
			t.Errorf("received %q", got)
		}
		send("gone on the way", b)
		to.Shutdown()
		from.Shutdown()
		send("gone sender", b)
		time.Sleep(20 * time.Millisecond)
		if n.Lost() != 5 {
			t.Errorf("%d lost, want 5", n.Lost())
		}
	})
}

// TestNoReaderDoesNotBlock is the reason for this package.
func TestNoReaderDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{})
		from, to := listen(t, n, a), listen(t, n, b)
		for range packetBuffer + 100 {
			from.WriteTo([]byte{1}, b)
		}
		time.Sleep(time.Second)
		if got := len(received(to)); got != packetBuffer || n.Lost() != 100 {
			t.Errorf("%d packets kept, %d lost", got, n.Lost())
		}
		for range backlog {
			if conn, err := from.DialTimeout(b, time.Second); err != nil {
				t.Fatal(err)
			} else {
				defer conn.Close()
			}
		}
		if _, err := from.DialTimeout(b, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial with a full backlog: %v", err)
		}
	})
}

func TestLossAndJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Seed: 5, Latency: time.Millisecond, Jitter: 9 * time.Millisecond, Loss: 0.3})
		from, to := listen(t, n, a), listen(t, n, b)
		arrived, reordered, last := 0, 0, byte(0)
		for i := range 200 {
			from.WriteTo([]byte{byte(i)}, b)
		}
		began := time.Now()
		time.Sleep(10 * time.Millisecond)
		for len(to.packets) > 0 {
			p := <-to.PacketCh()
			if d := p.Timestamp.Sub(began); d < time.Millisecond || d >= 10*time.Millisecond {
				t.Errorf("packet took %v", d)
			}
			if arrived++; p.Buf[0] < last {
				reordered++
			}
			last = p.Buf[0]
		}
		if arrived < 110 || arrived > 170 || reordered == 0 || arrived+n.Lost() != 200 {
			t.Errorf("%d of 200 arrived, %d out of order, %d lost", arrived, reordered, n.Lost())
		}
		n.SetLoss(1)
		from.WriteTo([]byte{1}, b)
		time.Sleep(time.Second)
		if got := received(to); got != nil {
			t.Errorf("received %q with all lost", got)
		}
	})
}

// pair opens a stream from h to g.
func pair(t *testing.T, h, g *Transport) (near, far net.Conn) {
	t.Helper()
	near, err := h.DialTimeout(g.Addr(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return near, <-g.StreamCh()
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Latency: 10 * time.Millisecond})
		from, to := listen(t, n, a), listen(t, n, b)
		began := time.Now()
		near, far := pair(t, from, to)
		if d := time.Since(began); d != 20*time.Millisecond {
			t.Errorf("the dial took %v, want a round trip", d)
		}
		if near.LocalAddr().String() != a || near.RemoteAddr().String() != b || far.RemoteAddr().String() != a || far.RemoteAddr().Network() != "simnet" {
			t.Errorf("addresses %v %v %v", near.LocalAddr(), near.RemoteAddr(), far.RemoteAddr())
		}
		go func() {
			io.WriteString(near, "one way")
			near.Close()
		}()
		if got, err := io.ReadAll(far); string(got) != "one way" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		far.Close()
		if len(from.open)+len(to.open) != 0 {
			t.Errorf("%d and %d streams are held after they were closed", len(from.open), len(to.open))
		}
	})
}

func TestDialsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Latency: 10 * time.Millisecond})
		from, to := listen(t, n, a), listen(t, n, b)
		tests := []struct {
			name string
			prep func()
			to   string
			err  error
			took time.Duration
		}{
			{"nobody listens", func() {}, c, syscall.ECONNREFUSED, 20 * time.Millisecond},
			{"cut", func() { n.Cut(a, b) }, b, os.ErrDeadlineExceeded, time.Second},
			{"vanished", func() { n.Mend(); to.Shutdown() }, b, syscall.ECONNREFUSED, 20 * time.Millisecond},
			{"self vanished", func() { from.Shutdown() }, b, os.ErrDeadlineExceeded, time.Second},
		}
		for _, tt := range tests {
			tt.prep()
			began := time.Now()
			_, err := from.DialTimeout(tt.to, time.Second)
			if !errors.Is(err, tt.err) || time.Since(began) != tt.took {
				t.Errorf("%s: %v after %v, want %v after %v", tt.name, err, time.Since(began), tt.err, tt.took)
			}
		}
	})
}

// TestPartitionBreaksStreams: those that cross it, at both ends, and no others.
func TestPartitionBreaksStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{})
		ha, hb, hc := listen(t, n, a), listen(t, n, b), listen(t, n, c)
		near, far := pair(t, ha, hb)
		kept, keptFar := pair(t, hb, hc)
		n.Partition(a)
		for name, conn := range map[string]net.Conn{"near": near, "far": far} {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("the %s end still reads", name)
			}
		}
		go kept.Write([]byte{1})
		if _, err := keptFar.Read(make([]byte, 1)); err != nil {
			t.Errorf("a stream inside one side: %v", err)
		}
		hb.WriteTo([]byte("inside"), c)
		ha.WriteTo([]byte("across"), c)
		time.Sleep(time.Millisecond)
		if got := received(hc); len(got) != 1 || got[0] != "inside from "+b {
			t.Errorf("received %q", got)
		}
		hc.Shutdown()
		if _, err := kept.Write([]byte{1}); err == nil {
			t.Error("a stream to a host that vanished still writes")
		}
	})
}

func TestListenRefuses(t *testing.T) {
	n := New(Config{})
	first := listen(t, n, a)
	for _, addr := range []string{"", "10.0.0.1", "host:1", a} {
		if _, err := n.Listen(addr); err == nil {
			t.Errorf("listen on %q succeeded", addr)
		}
	}
	first.Shutdown()
	if err := first.Shutdown(); err != nil {
		t.Errorf("second Shutdown: %v", err)
	}
	again := listen(t, n, a)
	first.Shutdown() // must not detach its successor
	if n.hosts[again.Addr()] != again {
		t.Error("the successor was detached")
	}
}
