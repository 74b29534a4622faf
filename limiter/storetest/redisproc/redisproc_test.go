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
