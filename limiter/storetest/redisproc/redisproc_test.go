package redisproc

import (
	"errors"
	"testing"
)

func TestLifecycle(t *testing.T) {
	s := Start(t)
	s.Do("SET", "a", "1")
	if got := s.Do("GET", "a"); got != "1" {
		t.Fatalf("GET a: got %v, want 1", got)
	}
	c, err := Dial(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var reply ReplyError
	if _, err := c.Do("INCR"); !errors.As(err, &reply) {
		t.Fatalf("wrong arguments: got %v, want an error reply", err)
	}

	s.Stop()
	if err := c.Send("INCR", "a"); err != nil {
		t.Fatal(err)
	}
	s.Cont()
	if got, err := c.Receive(); got != int64(2) || err != nil {
		t.Fatalf("a frozen server answers late: got %v, %v; want 2", got, err)
	}

	s.Kill()
	s.Restart()
	if got := s.Do("GET", "a"); got != nil {
		t.Fatalf("after a restart: got %v, want nothing", got)
	}
}

// TestCluster: a cluster comes up, moves a slot, and replaces a master.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	slot := c.Slot("{a}1")
	from := c.Masters[c.Index(slot)]
	to := c.Masters[(c.Index(slot)+1)%clusterMasters]
	from.Do("SET", "{a}1", "x")
	from.Do("SET", "{a}2", "y")
	c.Migrate(slot, from, to, nil)
	if got := to.Do("GET", "{a}1"); got != "x" {
		t.Fatalf("after the move: got %v, want x", got)
	}
	replicated(t, to, "SET", "{a}2", "y")
	to.Kill()
	replica := c.Replicas[(c.Index(slot)+1)%clusterMasters]
	c.AwaitMaster(replica)
	if got := replica.Do("GET", "{a}2"); got != "y" {
		t.Fatalf("after the failover: got %v, want y", got)
	}
}

// replicated sends a write and waits, on the same connection, until a replica has
// it: WAIT counts what its own connection wrote.
func replicated(t *testing.T, s *Server, write ...string) {
	t.Helper()
	c, err := Dial(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Do(write...); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Do("WAIT", "1", "10000"); err != nil || n != int64(1) {
		t.Fatalf("%v is not replicated: WAIT says %v, %v", write, n, err)
	}
}

// TestSentinels: sentinels promote the replica of a master that died.
func TestSentinels(t *testing.T) {
	t.Parallel()
	s := StartSentinels(t)
	replicated(t, s.Master, "SET", "a", "1")
	s.Master.Kill()
	s.AwaitPromotion()
	if got := s.Replica.Do("GET", "a"); got != "1" {
		t.Fatalf("after the failover: got %v, want 1", got)
	}
}
