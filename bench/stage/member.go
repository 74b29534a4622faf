package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
)

// member is one running replica.
type member interface {
	// admin is the base address of its admin listener.
	admin() string
	// stop drains it and returns when it has ended, at the latest when ctx has.
	stop(ctx context.Context) error
}

// launcher starts a member from its configuration.
type launcher func(ctx context.Context, yaml []byte, a address) (member, error)

// local is a replica in this process.
type local struct{ *replica.Replica }

func (l local) admin() string                  { return l.AdminURL() }
func (l local) stop(ctx context.Context) error { return l.Shutdown(ctx) }

// launchLocal is the launcher of replicas in this process. Their configuration
// is parsed once: that of ten thousand keys takes a while, and only what is set
// here differs between them.
func launchLocal(w io.Writer) launcher {
	log := slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
	var mu sync.Mutex
	var first *config.Config
	return func(ctx context.Context, yaml []byte, a address) (member, error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			cfg, err := config.Parse(yaml, os.LookupEnv)
			if err != nil {
				return nil, fmt.Errorf("stage: configuration: %w", err)
			}
			first = cfg
		}
		cfg := *first
		cfg.Server.Listen, cfg.Server.AdminListen = a.api, a.admin
		cfg.Fleet.Name, cfg.Fleet.Bind, cfg.Fleet.Advertise, cfg.Fleet.Join = a.name, a.gossip, a.advertise, a.join
		r, err := replica.Start(ctx, &cfg, replica.Options{Logger: log})
		if err != nil {
			return nil, err
		}
		return local{r}, nil
	}
}

// process is a `headway serve`.
type process struct {
	cmd      *exec.Cmd
	adminURL string
	exited   chan struct{} // closed when it has ended and said its last
	last     *tail
}

// launchProcess is the launcher of real processes of the program at binary,
// which keep their configuration in dir.
func launchProcess(binary, dir string) launcher {
	return func(ctx context.Context, yaml []byte, a address) (member, error) {
		file := filepath.Join(dir, a.name+".yaml")
		if err := os.WriteFile(file, yaml, 0o600); err != nil {
			return nil, err
		}
		p := &process{cmd: exec.Command(binary, "serve", "--config", file), exited: make(chan struct{}), last: &tail{}}
		// A process group of its own: Ctrl-C is for this program, which ends
		// the replicas when it is done with them.
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		logs, err := p.cmd.StderrPipe()
		if err != nil {
			return nil, err
		}
		if err := p.cmd.Start(); err != nil {
			return nil, fmt.Errorf("stage: start %s: %w", binary, err)
		}
		ready := make(chan struct{})
		go p.follow(logs, ready)
		select {
		case <-ready:
			return p, nil
		case <-p.exited:
			return nil, fmt.Errorf("stage: %s ended at once:\n%s", binary, p.last)
		case <-time.After(startTimeout):
		case <-ctx.Done():
		}
		p.cmd.Process.Kill()
		<-p.exited
		return nil, fmt.Errorf("stage: %s did not start within %v:\n%s", binary, startTimeout, p.last)
	}
}

// follow reads the log: it says when the replica listens and where, and its end
// is the replica's.
func (p *process) follow(logs io.Reader, ready chan<- struct{}) {
	defer close(p.exited)
	lines := bufio.NewScanner(logs)
	for lines.Scan() {
		p.last.add(lines.Text())
		var l struct{ Msg, Admin string }
		if p.adminURL == "" && json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "replica started" {
			p.adminURL = l.Admin
			close(ready)
		}
	}
	io.Copy(io.Discard, logs) // a line too long for the scanner must not block the replica
	p.cmd.Wait()
}

func (p *process) admin() string { return p.adminURL }

// stop asks it to drain, as an init system would, and kills it if it does not.
func (p *process) stop(ctx context.Context) error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("stage: replica %d had to be killed:\n%s", p.cmd.Process.Pid, p.last)
	}
}

// kill ends it as a crash would.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

// tail keeps the last lines of a log.
type tail struct {
	mu    sync.Mutex
	lines []string
}

const tailLines = 12

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line)
	t.lines = t.lines[max(0, len(t.lines)-tailLines):]
}

// String is the lines that were kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// FindHeadway returns the program at path; or, without one, the one beside this
// program; or else builds one into dir.
func FindHeadway(ctx context.Context, path, dir string) (string, error) {
	if path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("stage: no headway program: %w", err)
		}
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "headway")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	built := filepath.Join(dir, "headway")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", built, "github.com/headway-limiter/headway/cmd/headway").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("stage: there is no headway beside this program, and building one failed; give its path: %w\n%s", err, out)
	}
	return built, nil
}

// Ports for listeners lie below those that systems hand out for outgoing
// connections, one of which could otherwise take a port between its choice and
// its use, or while a replica is away.
const firstPort, lastPort = 15_000, 32_000

// freePorts finds n ports of loopback that nobody listens on, by TCP and UDP.
func freePorts(n int) ([]string, error) {
	var addrs []string
	at := rand.IntN(lastPort - firstPort)
	for range lastPort - firstPort {
		if len(addrs) == n {
			return addrs, nil
		}
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+at)
		at = (at + 1) % (lastPort - firstPort)
		tcp, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		tcp.Close()
		if udp, err := net.ListenPacket("udp", addr); err == nil {
			udp.Close()
			addrs = append(addrs, addr)
		}
	}
	return nil, fmt.Errorf("stage: fewer than %d free ports in %d..%d", n, firstPort, lastPort)
}
