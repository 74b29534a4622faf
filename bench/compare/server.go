package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// server is a redis-server of our own, without persistence, on loopback.
type server struct {
	addr string
	dir  string
	cmd  *exec.Cmd
	conn rueidis.Client // for questions about the server itself
}

// startWait bounds how long a new server may take to answer.
const startWait = 10 * time.Second

func startServer(ctx context.Context) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("compare: free port: %w", err)
	}
	addr := l.Addr().String()
	l.Close()
	dir, err := os.MkdirTemp("", "compare")
	if err != nil {
		return nil, fmt.Errorf("compare: directory of redis-server: %w", err)
	}
	_, port, _ := net.SplitHostPort(addr)
	s := &server{addr: addr, dir: dir}
	s.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--save", "", "--appendonly", "no", "--loglevel", "warning", "--logfile", "redis.log")
	if err := s.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("compare: redis-server: %w", err)
	}
	for end := time.Now().Add(startWait); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		s.conn, err = rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true,
		})
		if err == nil && s.conn.Do(ctx, s.conn.B().Ping().Build()).Error() == nil {
			return s, nil
		}
	}
	// It may have lost its port to somebody else; a second run will find another.
	s.stop()
	return nil, fmt.Errorf("compare: redis-server does not answer within %v: %w", startWait, err)
}

// stop ends the process and forgets its directory.
func (s *server) stop() {
	if s.conn != nil {
		s.conn.Close()
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// empty forgets all keys, but no scripts.
func (s *server) empty(ctx context.Context) error {
	return s.conn.Do(ctx, s.conn.B().Flushall().Build()).Error()
}

// usage is what the server has spent so far.
type usage struct {
	cpu   time.Duration
	calls map[string]float64 // by command
	us    map[string]float64 // by command, those called by scripts too
}

// reset zeroes the statistics of commands.
func (s *server) reset(ctx context.Context) error {
	return s.conn.Do(ctx, s.conn.B().ConfigResetstat().Build()).Error()
}

func (s *server) usage(ctx context.Context) (usage, error) {
	u := usage{calls: map[string]float64{}, us: map[string]float64{}}
	cpu, err := s.info(ctx, "cpu")
	if err != nil {
		return u, err
	}
	// In seconds, with µs behind the point.
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu[name], 64)
		if err != nil {
			return u, fmt.Errorf("compare: INFO cpu: %s: %w", name, err)
		}
		u.cpu += time.Duration(seconds * float64(time.Second))
	}
	stats, err := s.info(ctx, "commandstats")
	if err != nil {
		return u, err
	}
	// "cmdstat_evalsha:calls=3,usec=20,usec_per_call=6.67,..."; the time of a script
	// contains that of the commands it calls, which have lines of their own.
	for name, text := range stats {
		name = strings.TrimPrefix(name, "cmdstat_")
		for part := range strings.SplitSeq(text, ",") {
			key, value, _ := strings.Cut(part, "=")
			n, _ := strconv.ParseFloat(value, 64)
			switch key {
			case "calls":
				u.calls[name] = n
			case "usec":
				u.us[name] = n
			}
		}
	}
	return u, nil
}

// info reads a section of INFO.
func (s *server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.conn.Do(ctx, s.conn.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return nil, fmt.Errorf("compare: INFO %s: %w", section, err)
	}
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values, nil
}
