package stage

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// redisServer is a redis-server (or sentinel) of this run's own, to which
// things may be done. Its methods are called by one goroutine at a time.
type redisServer struct {
	addr string
	args []string
	cmd  *exec.Cmd // nil while it does not run
}

// startRedis runs the redis-server in PATH with its files in dir, without
// persistence, and with more args.
func startRedis(dir string, args ...string) (*redisServer, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(ports[0])
	return launchRedis(ports[0], append([]string{
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--logfile", "redis-" + port + ".log",
	}, args...))
}

// launchRedis runs redis-server with args, which make it listen on addr.
func launchRedis(addr string, args []string) (*redisServer, error) {
	s := &redisServer{addr: addr, args: args}
	if err := s.launch(); err != nil {
		return nil, err
	}
	return s, nil
}

// launch starts the process and returns when it answers.
func (s *redisServer) launch() error {
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("stage: this scenario does things to its Redis and so needs one of its own; install redis-server: %w", err)
	}
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(pollEvery) {
		if ping(s.addr) {
			return nil
		}
	}
	s.close()
	return fmt.Errorf("stage: redis-server on %s does not answer within %v", s.addr, startTimeout)
}

// pollEvery is how exactly the return of a server is known.
const pollEvery = 5 * time.Millisecond

// ping reports whether a Redis answers at addr.
func ping(addr string) bool {
	line, err := ask(addr, "PING")
	return err == nil && line != ""
}

// ask sends a command, given as one types it, over a connection of its own and
// returns the reply: a line, or a text. An error reply is an error.
func ask(addr, command string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprintf(c, "%s\r\n", command)
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	line = strings.TrimSpace(line)
	switch {
	case err != nil, line == "":
	case line[:1] == "-":
		err = fmt.Errorf("stage: redis at %s: %s: %s", addr, command, line[1:])
	case line[:1] == "$":
		size, _ := strconv.Atoi(line[1:])
		text := make([]byte, max(size, 0))
		_, err = io.ReadFull(r, text)
		return string(text), err
	}
	return line, err
}

// do is ask about the result alone.
func (s *redisServer) do(command string) error {
	_, err := ask(s.addr, command)
	return err
}

// stop makes it answer nothing; it still accepts. cont lets it go on, with all
// that it was sent meanwhile.
func (s *redisServer) stop() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *redisServer) cont() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// close ends it at once, stopped or not; launch starts it again, empty.
func (s *redisServer) close() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// redisVersion is that of the redis-server in PATH, empty if it does not tell.
func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(out), "v=")
	version, _, _ := strings.Cut(rest, " ")
	return version
}
