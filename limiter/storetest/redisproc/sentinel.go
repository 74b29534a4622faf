package redisproc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Sentinels is a master with its replica, and three sentinels that watch them.
type Sentinels struct {
	t               testing.TB
	Master, Replica *Server // as at the start
	Watchers        []*Server
}

const (
	// MasterName is what sentinels call the master.
	MasterName = "headway"
	// DownAfter is how long a master must be silent, in ms, before a sentinel takes
	// it for dead.
	DownAfter = 500

	// Scout is the name and the password of a user of the sentinels who may only
	// ask for the master.
	Scout = "scout"

	sentinels = 3
)

// StartSentinels starts them all and waits until every sentinel knows the others
// and the replica, and the replica is in sync. Extra arguments are for the
// servers that keep data.
func StartSentinels(t testing.TB, args ...string) *Sentinels {
	t.Helper()
	args = append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
	s := &Sentinels{t: t, Master: Start(t, args...)}
	s.Replica = Start(t, append([]string{"--replicaof", "127.0.0.1 " + s.Master.port}, args...)...)
	until(t, "the replica is in sync", s.Replica.inSync)
	for range sentinels {
		w := (&Server{t: t, conf: s.config}).start()
		// Not every 2 or 10 s, as in earnest: tests shall not wait for hellos.
		w.Do("SENTINEL", "DEBUG", "PUBLISH-PERIOD", "200", "INFO-PERIOD", "200", "PING-PERIOD", "100", "ASK-PERIOD", "100")
		s.Watchers = append(s.Watchers, w)
	}
	until(t, "the sentinels know all", func() bool {
		for _, w := range s.Watchers {
			about := w.about()
			if about["num-other-sentinels"] != strconv.Itoa(sentinels-1) || about["num-slaves"] != "1" || about["flags"] != "master" {
				return false
			}
		}
		return true
	})
	return s
}

// config writes the file of a sentinel, which rewrites it later.
func (s *Sentinels) config(w *Server) []string {
	text := fmt.Sprintf(`bind 127.0.0.1
port %s
dir %q
logfile sentinel.log
sentinel monitor %[3]s 127.0.0.1 %s 2
sentinel down-after-milliseconds %[3]s %[5]d
sentinel failover-timeout %[3]s 1500
sentinel parallel-syncs %[3]s 1
user %[6]s on >%[6]s -@all +@connection +sentinel|get-master-addr-by-name +sentinel|master
`, w.port, w.dir, MasterName, s.Master.port, DownAfter, Scout)
	path := filepath.Join(w.dir, "sentinel.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return []string{path, "--sentinel"}
}

// about returns what a sentinel tells of the master.
func (s *Server) about() map[string]string {
	reply, _ := s.Try("SENTINEL", "MASTER", MasterName)
	list, _ := reply.([]any)
	m := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		m[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return m
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinels) Addrs() (list []string) {
	for _, w := range s.Watchers {
		list = append(list, w.Addr())
	}
	return list
}

// AwaitPromotion waits until the replica has become the master.
func (s *Sentinels) AwaitPromotion() {
	s.t.Helper()
	until(s.t, "the replica is promoted", s.Replica.IsMaster)
}
