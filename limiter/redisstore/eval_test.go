package redisstore_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
	"github.com/headway-limiter/headway/lua"
)

// document is a script of a test.
func document(source string, fenced bool) lua.Script {
	sum := sha1.Sum([]byte(source))
	return lua.Script{Name: "test", Source: source, SHA: hex.EncodeToString(sum[:]), Fenced: fenced}
}

var (
	// appendDoc adds a text to a list and replies with all kinds of values.
	appendDoc = document(`redis.call('RPUSH', KEYS[1], ARGV[1])
return { redis.call('LLEN', KEYS[1]), ARGV[1], false, redis.call('LRANGE', KEYS[1], 0, -1), {} }`, false)
	// fencedDoc counts unless its fence has passed.
	fencedDoc = document(`local t = redis.call('TIME')
if t[1] * 1000000 + t[2] > tonumber(ARGV[1]) then return { 0, ARGV[2] } end
return { redis.call('INCR', KEYS[1]), ARGV[2] }`, true)
	twoKeys = document(`return { redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]) }`, false)
)

// TestEval: values come back as they are, from every kind of server, before and
// after it has forgotten the script.
func TestEval(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) redisstore.Options{
		"miniredis": func(t *testing.T) redisstore.Options { return redisstore.Options{Address: startMini(t)} },
		"redis":     func(t *testing.T) redisstore.Options { return redisstore.Options{Address: redisproc.Start(t).Addr()} },
		"cluster": func(t *testing.T) redisstore.Options {
			return redisstore.Options{Mode: redisstore.ModeCluster, Addresses: []string{redisproc.StartLone(t).Addr()}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t)
			o.Timeout = patient
			s := newStore(t, o)
			storetest.Eventually(t, patient, "usable", usable(s))
			addr := o.Address
			if addr == "" {
				addr = o.Addresses[0]
			}
			evalValues(t, s, addr)
			evalMistakes(t, s)
		})
	}
}

func evalValues(t *testing.T, s *redisstore.Store, addr string) {
	for i, text := range []string{"a", "{b}\x00\r\n"} {
		got, err := s.Eval(t.Context(), appendDoc, []string{"hw:{hw-test}:list"}, text)
		want := []any{int64(i + 1), text, nil, []any{"a", text}[:i+1], []any{}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("call %d: got %#v, %v; want %#v", i, got, err, want)
		}
		conn, err := redisproc.Dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	got, err := s.Eval(t.Context(), fencedDoc, []string{"hw:{hw-test}:n"}, "x")
	if want := []any{int64(1), "x"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("fenced: got %#v, %v; want %#v", got, err, want)
	}
	for source, want := range map[string]any{"return 7": int64(7), "return false": nil, "return {ok = 'fine'}": "fine"} {
		got, err := s.Eval(t.Context(), document(source, false), []string{"{hw-test}"})
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %#v, %v; want a list of %v", source, got, err, want)
		}
	}
}

// evalMistakes: what is wrong with the call is named, and sends nothing; what is
// wrong with the script is a failure of the store.
func evalMistakes(t *testing.T, s *redisstore.Store) {
	before := s.Calls()
	for _, c := range []struct {
		keys []string
		arg  string
		want []string
	}{
		{nil, "", []string{"no keys"}},
		{[]string{"hw:{hw-a}:x", "hw:{hw-b}:y"}, "", []string{"hw:{hw-a}:x", "hw:{hw-b}:y", "two slots"}},
		{[]string{"x", "y"}, "", []string{`"x" and "y"`}},
		{[]string{"{a}"}, strings.Repeat("x", 4<<20), []string{"4194307 bytes"}},
	} {
		_, err := s.Eval(t.Context(), twoKeys, c.keys, c.arg)
		if err == nil || errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("keys %q: got %v, want an error of the call", c.keys, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("keys %q: %q is not named in %v", c.keys, part, err)
			}
		}
	}
	if after := s.Calls(); after.Eval != before.Eval {
		t.Errorf("%d calls were sent", after.Eval-before.Eval)
	}
	if _, err := s.Eval(t.Context(), document("return redis.error_reply('ERR no')", false), []string{"{a}"}); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("a script that fails: got %v, want limiter.ErrUnavailable", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Eval(ended, twoKeys, []string{"{a}"}); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx has ended: got %v", err)
	}
}

// TestEvalSpreads: keys of many tags are found on whichever master has them.
func TestEvalSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t, 2)
		f.halves()
		s := newStore(t, redisstore.Options{
			Mode: redisstore.ModeCluster, Addresses: []string{f.addr(0)}, DialCtxFn: f.dial,
		})
		for i := range 20 {
			key := fmt.Sprintf("hw:{hw-%d}:list", i)
			if _, err := s.Eval(t.Context(), appendDoc, []string{key}, "x"); err != nil {
				t.Fatal(err)
			}
			node := int(redisstore.HashSlot(fmt.Sprintf("hw-%d", i)) / 8192)
			if !f.nodes[node].Redis.Exists(key) || f.nodes[1-node].Redis.Exists(key) {
				t.Errorf("%s is not on master %d alone", key, node)
			}
		}
	})
}

// TestEvalHung: a frozen server costs a caller a second at most, and its own
// deadline if that is sooner; a fenced script changes nothing when it wakes, and
// answers that nobody waits for harm nobody.
func TestEvalHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		key := []string{"hw:{hw-test}:n"}
		if _, err := r.store.Eval(t.Context(), fencedDoc, key, ""); err != nil {
			t.Fatal(err)
		}
		r.link.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := r.store.Eval(ctx, fencedDoc, key, ""); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 30*time.Millisecond {
			t.Errorf("got %v after %v, want the caller's own deadline", err, time.Since(start))
		}
		start = time.Now()
		if _, err := r.store.Eval(t.Context(), fencedDoc, key, ""); !errors.Is(err, limiter.ErrUnavailable) || time.Since(start) > time.Second {
			t.Errorf("got %v after %v, want ErrUnavailable within 1 s", err, time.Since(start))
		}
		time.Sleep(3 * time.Second)
		if _, err := r.store.Eval(t.Context(), fencedDoc, key, ""); !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("the breaker is open: got %v", err)
		}
		r.link.Thaw()
		time.Sleep(3 * time.Second)
		got, err := r.store.Eval(t.Context(), fencedDoc, key, "")
		if err != nil || got[0] != int64(2) {
			t.Errorf("got %v, %v; want the second count: those given up must not count", got, err)
		}
	})
}
