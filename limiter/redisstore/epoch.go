package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/lua"
)

const (
	// epochEvery is how often a replica asks whether Redis was emptied, with a cheap
	// call. So late it states anew what it holds.
	epochEvery = 250 * time.Millisecond
	// restating is for how long nobody takes slots of a pool from a Redis that was
	// emptied. Others must have noticed, at the latest when their breakers have closed
	// (openMost and a probe later), and stated what they hold.
	restating = 2 * time.Second
)

// epochKeys lie beside what has no home, pools of slots among it.
var epochKeys = []string{"hw:{" + sharedTag + "}:epoch"}

// epoch is what Redis says of since when it keeps what replicas hold.
type epoch struct {
	name  string
	until time.Time // before, the replicas have not all stated what they hold
}

// epochs keeps the one that is known. Whoever takes slots of a pool names it, and
// Redis refuses if it has lost them since: so no replica needs to have noticed.
type epochs struct {
	known   atomic.Pointer[epoch] // nil before the first answer
	askSoon chan struct{}         // of capacity 1
	lost    atomic.Int64
}

// current returns the epoch by which a call may take slots now, "" if by none.
func (e *epochs) current(now time.Time) string {
	if k := e.known.Load(); k != nil && !now.Before(k.until) {
		return k.name
	}
	return ""
}

func (e *epochs) soon() {
	select {
	case e.askSoon <- struct{}{}:
	default:
	}
}

// keepEpoch asks for the epoch now and then, until quit.
func (s *Store) keepEpoch() {
	tick := time.NewTicker(epochEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.epochs.askSoon:
		case <-tick.C:
		}
		s.askEpoch()
	}
}

// askEpoch learns the epoch. If it is another than before, all that is held here is
// stated anew at once. One caller at a time: answers must come in their order. Its
// deadline is its own, so that the store's breaker does not count it.
func (s *Store) askEpoch() {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.Timeout)
	defer cancel()
	reply, err := s.Eval(ctx, lua.Epoch, epochKeys, strconv.FormatInt(s.ttl, 10))
	if err != nil || len(reply) != 1 {
		return
	}
	name, _ := reply[0].(string)
	old := s.epochs.known.Load()
	if name == "" || old != nil && old.name == name {
		return
	}
	if old == nil {
		s.epochs.known.Store(&epoch{name: name})
		return
	}
	s.epochs.known.Store(&epoch{name, time.Now().Add(restating)})
	s.epochs.lost.Add(1)
	held, _ := s.slots.counts()
	s.log.Warn("store emptied: slots are stated anew", "held", held, "slots_of_agents_by_shares_for", restating.String())
	s.slots.markAll()
	s.outbox.hurry()
}

// errForgotten is that of a call for slots of a pool that Redis may count wrong.
var errForgotten = fmt.Errorf("redisstore: %w", limiter.ErrForgotten)

// hurry lets lanes that rest after a failure send at once.
func (o *outbox) hurry() {
	o.mu.Lock()
	for _, l := range o.lanes {
		l.rest, l.backoff = time.Time{}, retryFirst
	}
	o.mu.Unlock()
	o.poke()
}
