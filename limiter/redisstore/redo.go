package redisstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const (
	// redoMost bounds how often one call is sent again. Between servers that point
	// at each other there is no more to be gained.
	redoMost = 16
	// redoPause lies between attempts where only time helps: a slot on its way to
	// another server has some of a call's keys here and some there.
	redoPause = 4 * time.Millisecond
)

// redo prepares c for another attempt if its reply proves that nothing ran and
// the next may fare better, inside the budget. Whoever else has failed is not
// asked again: nobody knows what it did. NOSCRIPT is dealt with by the client.
func (s *Store) redo(ctx context.Context, c *call) bool {
	if c.probe || c.ran != ranNot || c.hops == redoMost {
		return false
	}
	var pause time.Duration
	c.asking = false
	switch c.err.kind {
	case "ASK":
		c.node = s.router.redirect(c.err)
		c.asking = c.node != nil
	case "MOVED":
		c.node = s.router.redirect(c.err)
	case "TRYAGAIN", "LOADING", "CLUSTERDOWN":
		if c.node.breaker.shut.Load() {
			return false
		}
		c.node, pause = nil, redoPause+rand.N(redoPause)
	default:
		return false
	}
	if c.node == nil && pause == 0 { // whom it names is not known yet
		pause = redoPause + rand.N(redoPause)
	}
	if !time.Now().Add(pause).Before(c.until) {
		return false
	}
	if pause > 0 {
		c.timer.Reset(pause)
		select {
		case <-c.timer.C:
		case <-ctx.Done():
			c.timer.Stop()
			return false
		}
	}
	s.metrics.resent.Inc()
	c.alone = true // together with others it needs more keys to be in one place
	c.hops++
	c.err = nil
	c.state.Store(waiting)
	return true
}

// redirect returns the server that a MOVED or ASK reply names; nil if it is not
// known yet. Such a reply is "MOVED <slot> <host:port>".
func (r *router) redirect(f *failure) *client {
	r.look(nil)
	fields := strings.Fields(f.err.Error())
	if len(fields) != 3 {
		return nil
	}
	for _, n := range r.table.Load().nodes {
		if n.addr == fields[2] {
			return n
		}
	}
	return nil
}

// ask runs those of batch whose keys are on their way to this server, and
// returns the others. ASKING holds for the very next command of its connection,
// so both go out together, and a script that is missing is loaded first.
func (c *client) ask(batch []*call) (others []*call) {
	if !slices.ContainsFunc(batch, func(call *call) bool { return call.asking }) {
		return batch
	}
	for _, call := range batch {
		if !call.asking {
			others = append(others, call)
			continue
		}
		c.askOne(call)
		if call.err.missing() {
			if call.err = c.load(call.script); call.err == nil {
				c.askOne(call)
			}
		}
	}
	return others
}

func (c *client) askOne(call *call) {
	call.err, call.ran = errNotSent, ranNot
	if call.state.Load() != waiting || !time.Now().Before(call.until) {
		return
	}
	if err := c.stamp(call); err != nil {
		call.err = err
		return
	}
	g := &group{}
	g.calls, g.shape = append(g.calls, call), call.shape()
	cmd, err := c.command(g)
	if err != nil {
		call.err = err
		return
	}
	gen, sent := c.fence.generation(), time.Now()
	results, err := c.pipeline(rueidis.Commands{c.redis.B().Asking().Build(), cmd})
	if err != nil {
		g.fail(err, ranUnknown)
	} else if now := g.answer(results[1]); now > 0 {
		c.fence.observe(gen, sent, time.Now(), now, now)
	}
}
