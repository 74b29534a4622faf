// Package redisproc runs a real redis-server for tests: on a free loopback
// port, in a directory of its own, without persistence, ended with the test. So
// it does with several: a master that sentinels watch, and a Redis Cluster.
//
// A stand-in is not enough for a store that must survive its server: only a
// real process can be stopped (hung, not down), killed, and restarted empty,
// and only it shows its own error replies. The package also has the smallest
// client that can speak to it, so that a harness may lose a reply on purpose.
package redisproc

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is one redis-server process. Its methods must be called from the test
// that started it; they fail that test when the process does not obey.
type Server struct {
	t    testing.TB
	dir  string
	port string
	args []string
	// conf writes a configuration file for a port, in place of the usual arguments,
	// and returns the arguments; nil for a server of the usual kind.
	conf func(s *Server) []string
	tls  bool      // it speaks nothing but TLS; see launch
	cmd  *exec.Cmd // nil while killed
}

// startTimeout bounds the time until a new server answers PING.
const startTimeout = 10 * time.Second

// Start runs redis-server with extra arguments ("--maxmemory", "1mb"). It fails
// the test when there is no redis-server in PATH: real Redis is part of the
// contract, so its absence is never skipped over.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return (&Server{t: t, args: args}).start()
}

// start finds a directory and a port, and launches s there.
func (s *Server) start() *Server {
	t := s.t
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatalf("redisproc: redis-server is needed for this test, install it: %v", err)
	}
	s.dir = t.TempDir()
	t.Cleanup(s.end)
	for range 5 { // the free port may be taken by somebody else meanwhile
		s.port = freePort(t)
		if s.launch() == nil {
			return s
		}
	}
	t.Fatal("redisproc: redis-server did not start five times in a row")
	return nil
}

// freePort returns a port that was free just now.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redisproc: no free port: %v", err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// launch starts the process and waits until it answers.
func (s *Server) launch() error {
	args := s.arguments()
	cmd := exec.Command("redis-server", args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	for end := time.Now().Add(startTimeout); time.Now().Before(end); {
		if s.answers() {
			return nil
		}
		if cmd.Process.Signal(syscall.Signal(0)) != nil {
			break
		}
		pause(10 * time.Millisecond)
	}
	s.end()
	return fmt.Errorf("redisproc: no answer on port %s within %v", s.port, startTimeout)
}

// arguments are those of the process.
func (s *Server) arguments() []string {
	if s.conf != nil {
		return s.conf(s)
	}
	port := "--port"
	if s.tls {
		port = "--tls-port"
	}
	args := []string{
		"--bind", "127.0.0.1", "--port", "0", port, s.port, "--dir", s.dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning", "--logfile", "redis.log",
		"--enable-debug-command", "local",
	}
	return append(args, s.args...)
}

// answers reports whether the server can be spoken to. With TLS it must only
// accept: the test has the certificates.
func (s *Server) answers() bool {
	if s.tls {
		c, err := net.DialTimeout("tcp", s.Addr(), dialTimeout)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	_, err := s.Try("PING")
	return err == nil
}

// pause waits for another process, which no fake clock can hurry.
func pause(d time.Duration) { <-time.After(d) }

// Addr returns the server's host:port. It stays the same over restarts.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// Stop freezes the process (SIGSTOP): it accepts connections, reads nothing.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont lets a frozen process run on; it then executes all it was sent.
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

// Kill ends the process at once (SIGKILL); all data is lost.
func (s *Server) Kill() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	s.cmd.Wait()
	s.cmd = nil
}

// Restart starts an empty server at the same address, killing a running one.
func (s *Server) Restart() {
	s.t.Helper()
	if s.cmd != nil {
		s.Kill()
	}
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

// Do sends one command over a connection of its own and returns the reply,
// failing the test on any error.
func (s *Server) Do(args ...string) any {
	s.t.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("redisproc: %s: %v: %v", s.Addr(), args, err)
	}
	return reply
}

// Try sends one command over a connection of its own, and gives up after two
// seconds of silence.
func (s *Server) Try(args ...string) (any, error) {
	c, err := Dial(s.Addr())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.c.SetDeadline(time.Now().Add(dialTimeout))
	return c.Do(args...)
}

// StartTLS runs a server that speaks nothing but TLS, with the certificates that
// args name ("--tls-cert-file", ...).
func StartTLS(t testing.TB, args ...string) *Server {
	t.Helper()
	return (&Server{t: t, args: args, tls: true}).start()
}

// until polls until ok, failing the test after a generous while.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(stateTimeout); !ok(); pause(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("redisproc: not within %v: %s", stateTimeout, what)
		}
	}
}

// stateTimeout bounds the wait for processes to agree on something.
const stateTimeout = 60 * time.Second

// fields reads "name<sep>value" lines, as INFO and CLUSTER INFO have them.
func fields(text any) map[string]string {
	m := map[string]string{}
	s, _ := text.(string)
	for line := range strings.Lines(s) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// Info returns the fields of INFO, of one section or of all for "".
func (s *Server) Info(section string) map[string]string {
	reply, err := s.Try("INFO", cmp.Or(section, "default"))
	if err != nil {
		return nil
	}
	return fields(reply)
}

// IsMaster reports whether the server runs and takes itself for a master.
func (s *Server) IsMaster() bool { return s.cmd != nil && s.Info("replication")["role"] == "master" }

// signal sends sig to the process that this test has started, never to another.
func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatalf("redisproc: %v to a server that does not run", sig)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redisproc: %v: %v", sig, err)
	}
}

// end kills what still runs. A stopped process dies of SIGKILL too.
func (s *Server) end() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}
