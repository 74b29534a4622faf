package redisproc

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Cluster is a Redis Cluster of three masters, each with one replica. Roles
// change with failovers; the lists are as at the start.
type Cluster struct {
	t        testing.TB
	Masters  []*Server
	Replicas []*Server // Replicas[i] began as that of Masters[i]
}

const (
	clusterSlots   = 16384
	clusterMasters = 3
	// NodeTimeout is how long a node must be silent, in ms, before the others take
	// it for dead. Elections take about as long again.
	NodeTimeout = 1000
)

// StartCluster starts a cluster and waits until it is whole: every node knows
// all others, every replica is in sync. Extra arguments are for every node.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range clusterMasters {
		c.Masters = append(c.Masters, startNode(t, args))
		c.Replicas = append(c.Replicas, startNode(t, args))
	}
	for i, m := range c.Masters {
		m.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		m.Do("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*clusterSlots/clusterMasters), strconv.Itoa((i+1)*clusterSlots/clusterMasters-1))
	}
	for _, n := range c.Nodes()[1:] {
		c.Masters[0].Do("CLUSTER", "MEET", "127.0.0.1", n.port, n.busPort())
	}
	all := func(ok func(*Server) bool) func() bool {
		return func() bool {
			for _, n := range c.Nodes() {
				if !ok(n) {
					return false
				}
			}
			return true
		}
	}
	until(t, "all nodes know each other", all(func(n *Server) bool {
		return strings.Count(n.nodesText(), " connected") == 2*clusterMasters
	}))
	for i, r := range c.Replicas {
		r.Do("CLUSTER", "REPLICATE", c.Masters[i].nodeID())
	}
	until(t, "the cluster is whole", all(func(n *Server) bool {
		info, _ := n.Try("CLUSTER", "INFO")
		return fields(info)["cluster_state"] == "ok" && strings.Count(n.nodesText(), "slave ") == clusterMasters
	}))
	for i := range c.Replicas {
		c.AwaitSync(c.Replicas[i])
	}
	return c
}

// startNode starts an empty node that knows nobody. Ports of the bus are told,
// not derived: 10,000 more than a free port is often none. A replica stands for
// election however old its data is: one whose votes came too late on a busy machine
// would never again after eleven timeouts.
func startNode(t testing.TB, args []string) *Server {
	return (&Server{t: t, args: append([]string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", freePort(t),
		"--cluster-node-timeout", strconv.Itoa(NodeTimeout), "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	}, args...)}).start()
}

// busPort is the node's port for its peers.
func (s *Server) busPort() string { return s.args[5] }

func (s *Server) nodesText() string {
	reply, _ := s.Try("CLUSTER", "NODES")
	text, _ := reply.(string)
	return text
}

func (s *Server) nodeID() string { return s.Do("CLUSTER", "MYID").(string) }

// Nodes returns all servers, masters first.
func (c *Cluster) Nodes() []*Server {
	return append(append([]*Server(nil), c.Masters...), c.Replicas...)
}

// Addrs returns the addresses of all servers.
func (c *Cluster) Addrs() (list []string) {
	for _, n := range c.Nodes() {
		list = append(list, n.Addr())
	}
	return list
}

// AwaitSync waits until a replica has all that its master has.
func (c *Cluster) AwaitSync(replica *Server) {
	c.t.Helper()
	until(c.t, "the replica is in sync", replica.inSync)
}

// inSync reports whether a replica has been sent something since it was copied: a
// ping of its master, at the latest. Before its first word to the master, up to a
// second after the link is up, writes wait there and are lost with it.
func (s *Server) inSync() bool {
	info := s.Info("replication")
	offset, _ := strconv.Atoi(info["slave_repl_offset"])
	return info["role"] == "slave" && info["master_link_status"] == "up" && offset > 1
}

// AwaitMaster waits until s, a replica so far, has been promoted and owns slots.
func (c *Cluster) AwaitMaster(s *Server) {
	c.t.Helper()
	until(c.t, "the replica is promoted", func() bool { return c.Owns(s) })
}

// Owns reports whether s says that it is a master with slots.
func (c *Cluster) Owns(s *Server) bool {
	for line := range strings.Lines(s.nodesText()) {
		if f := strings.Fields(line); len(f) > 8 && strings.HasPrefix(f[2], "myself,master") {
			return true
		}
	}
	return false
}

// Slot is the hash slot of a key.
func (c *Cluster) Slot(key string) int {
	for _, n := range c.Nodes() {
		if reply, err := n.Try("CLUSTER", "KEYSLOT", key); err == nil {
			return int(reply.(int64))
		}
	}
	c.t.Fatal("redisproc: no node answers")
	return 0
}

// Index is the place in Masters of the server that began as the owner of a slot.
func (c *Cluster) Index(slot int) int {
	for i := range clusterMasters {
		if slot < (i+1)*clusterSlots/clusterMasters {
			return i
		}
	}
	return clusterMasters - 1
}

// Flush empties every master.
func (c *Cluster) Flush() {
	for _, n := range c.Nodes() {
		if n.IsMaster() {
			n.Do("FLUSHALL")
		}
	}
}

// Migrate moves a slot from one master to another, as redis-cli does: keys one
// after the other, while calls go on. between is called when half of the keys
// have moved.
func (c *Cluster) Migrate(slot int, from, to *Server, between func()) {
	c.t.Helper()
	s := strconv.Itoa(slot)
	to.Do("CLUSTER", "SETSLOT", s, "IMPORTING", from.nodeID())
	from.Do("CLUSTER", "SETSLOT", s, "MIGRATING", to.nodeID())
	half := int(from.Do("CLUSTER", "COUNTKEYSINSLOT", s).(int64)) / 2
	for moved := 0; ; moved++ {
		if moved == half && between != nil {
			between()
			between = nil
		}
		keys := from.Do("CLUSTER", "GETKEYSINSLOT", s, "1").([]any)
		if len(keys) == 0 {
			break
		}
		from.Do("MIGRATE", "127.0.0.1", to.port, fmt.Sprint(keys[0]), "0", "5000")
	}
	for _, n := range []*Server{to, from} { // first whoever has the keys
		n.Do("CLUSTER", "SETSLOT", s, "NODE", to.nodeID())
	}
}

// StartLone starts a cluster of one node that has every slot. It is enough to see
// whether scripts declare their keys, and keep to one slot.
func StartLone(t testing.TB) *Server {
	t.Helper()
	s := startNode(t, nil)
	s.Do("CLUSTER", "ADDSLOTSRANGE", "0", strconv.Itoa(clusterSlots-1))
	until(t, "the node serves", func() bool {
		info, _ := s.Try("CLUSTER", "INFO")
		return fields(info)["cluster_state"] == "ok"
	})
	return s
}
