package stage

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"time"
)

// redisServer is a redis-server of this run's own, which may be stopped.
type redisServer struct {
	cmd  *exec.Cmd
	addr string
}

// startRedis runs the redis-server in PATH, without persistence, with its files
// in dir.
func startRedis(dir string) (*redisServer, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(ports[0])
	s := &redisServer{addr: ports[0], cmd: exec.Command("redis-server",
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--logfile", "redis.log")}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("stage: this scenario stops its Redis and so needs one of its own; install redis-server: %w", err)
	}
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(lookEvery) {
		if ping(s.addr) {
			return s, nil
		}
	}
	s.close()
	return nil, fmt.Errorf("stage: redis-server on %s does not answer within %v", s.addr, startTimeout)
}

// ping reports whether a Redis answers at addr.
func ping(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(c, "PING\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && line != ""
}

// stop makes it answer nothing; it still accepts. cont lets it go on, with all
// that it was sent meanwhile.
func (s *redisServer) stop() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *redisServer) cont() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// close ends it, stopped or not.
func (s *redisServer) close() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}
