package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// masterName is what the sentinels call the master.
	masterName = "headway"
	sentinels  = 3 // of which two must agree
	// downAfter is how long a master must be silent for a sentinel to take it for
	// down. Those of production are slower; what is measured here is the fleet.
	downAfter = 500 * time.Millisecond
	// failoverTimeout bounds everything that sentinels wait for.
	failoverTimeout = 10 * time.Second
)

// trio is a master with a replica, watched by three sentinels.
type trio struct {
	master, spare *redisServer
	watchers      []*redisServer
}

// startTrio starts all, with their files in dir, and returns when sentinels
// could fail over.
func startTrio(ctx context.Context, dir string) (t *trio, err error) {
	t = &trio{}
	defer func() {
		if err != nil {
			t.close()
			t = nil
		}
	}()
	// A replica gets its copy at once, not after the usual 5 s.
	if t.master, err = startRedis(dir, "--repl-diskless-sync-delay", "0"); err != nil {
		return
	}
	host, port, _ := net.SplitHostPort(t.master.addr)
	if t.spare, err = startRedis(dir, "--repl-diskless-sync-delay", "0", "--replicaof", host+" "+port); err != nil {
		return
	}
	if err = await(ctx, "a replica of the master", func() bool { return t.spare.tells("INFO replication", "master_link_status:up") }); err != nil {
		return
	}
	for range sentinels {
		w, failed := startSentinel(dir, host, port)
		if failed != nil {
			return t, failed
		}
		t.watchers = append(t.watchers, w)
	}
	err = await(ctx, "three sentinels that know each other", func() bool {
		for _, w := range t.watchers {
			if !w.tells("INFO sentinel", fmt.Sprintf("slaves=1,sentinels=%d", sentinels)) {
				return false
			}
		}
		return true
	})
	return
}

// startSentinel runs one sentinel. It keeps what it learns in its configuration.
func startSentinel(dir, host, port string) (*redisServer, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	_, own, _ := net.SplitHostPort(ports[0])
	file := filepath.Join(dir, "sentinel-"+own+".conf")
	text := fmt.Sprintf("port %[1]s\nbind 127.0.0.1\ndir %[2]q\nlogfile sentinel-%[1]s.log\n"+
		"sentinel monitor %[3]s %[4]s %[5]s 2\nsentinel down-after-milliseconds %[3]s %[6]d\nsentinel failover-timeout %[3]s %[7]d\n",
		own, dir, masterName, host, port, downAfter.Milliseconds(), failoverTimeout.Milliseconds())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return launchRedis(ports[0], []string{file, "--sentinel"})
}

// promoted returns when the replica has become the master. before is when it
// was last seen not to be.
func (t *trio) promoted(ctx context.Context, before *time.Time) error {
	return await(ctx, "a new master", func() bool {
		asked := time.Now()
		if t.spare.tells("INFO replication", "role:master") {
			return true
		}
		*before = asked
		return false
	})
}

// addresses are those of the sentinels.
func (t *trio) addresses() (out []string) {
	for _, w := range t.watchers {
		out = append(out, w.addr)
	}
	return out
}

// close ends all of them, sentinels first: they would start a failover.
func (t *trio) close() {
	for _, s := range append(t.watchers, t.spare, t.master) {
		if s != nil {
			s.close()
		}
	}
}

// tells reports whether the reply to command contains text.
func (s *redisServer) tells(command, text string) bool {
	reply, err := ask(s.addr, command)
	return err == nil && strings.Contains(reply, text)
}

// await looks every few ms whether something is so, for as long as a server may
// take to start.
func await(ctx context.Context, what string, so func() bool) error {
	limited, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for !so() {
		pause(limited, pollEvery)
		if limited.Err() != nil {
			return errors.Join(fmt.Errorf("stage: no %s within %v", what, startTimeout), ctx.Err())
		}
	}
	return nil
}
