package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/lua"
)

const (
	// evalBudget is how long a script about documents may take, unless ctx ends
	// before. Nobody's admission waits for its answer, so it is longer than theirs.
	evalBudget = time.Second
	// evalMost bounds keys and arguments of one such call, in bytes. All calls to a
	// server share its connection, and 4 MiB keep the others waiting for some ms.
	evalMost = 4 << 20
)

// Eval runs a script about documents, whose keys are all in one hash slot, on the
// server that has it, and returns its reply: int64, string, nil, or []any of
// these. A reply that is no list is a list of one.
//
// Of a fenced script the first argument is the store's, a Redis time in µs after
// which it must change nothing; args are those that follow. Any other must bear to
// run after its caller was told of an error, or to run twice if that one asks again.
// A script must not answer with an error to say that it refuses: an error
// reply is a failure like any other, and many of them open the breaker.
//
// It fails after one second, or the budget of [Options.Timeout] if that is longer,
// or when ctx ends. Errors are those of [Store.Admit], of which all but those of
// ctx wrap limiter.ErrUnavailable, and those about the call itself, which wrap
// nothing and sent nothing: no keys, keys of two slots, more than 4 MiB of text.
// Keep it far below: what lies behind it on the connection waits. It is safe for
// concurrent use, and does not keep keys and args.
func (s *Store) Eval(ctx context.Context, script lua.Script, keys []string, args ...string) ([]any, error) {
	start := time.Now()
	until, err := s.beginWithin(ctx, start, max(evalBudget, s.opts.Timeout))
	if err != nil {
		return nil, err
	}
	home, err := evalHome(script.Name, keys, args)
	if err != nil {
		return nil, err
	}
	if err := s.router.refusal(home); err != nil {
		return nil, err
	}
	defer since(s.metrics.evalTime, start)
	c := s.calls.Get().(*call)
	c.home, c.until, c.document = home, until, true
	c.script = &script
	c.keys, c.args = append([]string(nil), keys...), append([]string(nil), args...)
	if err := s.exchange(ctx, c); err != nil {
		return nil, err
	}
	values := c.values
	s.release(c)
	return values, nil
}

// evalHome returns where the keys of a call are, or what is wrong with them.
func evalHome(name string, keys, args []string) (limiter.ID, error) {
	if len(keys) == 0 {
		return "", fmt.Errorf("redisstore: script %q: no keys, so no server to ask", name)
	}
	tag, size := tagOf(keys[0]), 0
	for _, key := range keys {
		if hashSlot(tagOf(key)) != hashSlot(tag) {
			return "", fmt.Errorf("redisstore: script %q: keys %q and %q are of two slots; give both one hash tag", name, keys[0], key)
		}
		size += len(key)
	}
	for _, arg := range args {
		size += len(arg)
	}
	if size > evalMost {
		return "", fmt.Errorf("redisstore: script %q: keys and arguments of %d bytes; at most %d", name, size, evalMost)
	}
	return limiter.ID(tag), nil
}

// tagOf is what Redis Cluster hashes of a key: what is between its first brace and
// the next closing one, or all of it if there is nothing.
func tagOf(key string) string {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// evaluated reads the reply of a script about documents.
func (c *call) evaluated(r rueidis.RedisResult) {
	c.values, c.err, c.ran = nil, nil, ranNot
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		c.err, c.ran = classify(err)
		return
	}
	value, err := r.ToAny()
	if err != nil && !rueidis.IsRedisNil(err) || !plain(value) {
		c.err, c.ran = errReply, ranUnknown
		return
	}
	if list, ok := value.([]any); ok {
		c.values = list
	} else {
		c.values = []any{value}
	}
}

// plain reports whether a value is of the kinds that Eval promises.
func plain(value any) bool {
	list, ok := value.([]any)
	if !ok {
		switch value.(type) {
		case nil, int64, string:
			return true
		}
		return false
	}
	for _, v := range list {
		if !plain(v) {
			return false
		}
	}
	return true
}
