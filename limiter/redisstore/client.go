package redisstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-limiter/headway/lua"
)

// workers × batchMost + queueMost bounds the calls outstanding. Few workers and
// large batches cost the least CPU per call; a batch is answered as a whole, so
// its size also bounds the latency it adds (64 scripts: about 1 ms).
const (
	workers   = 8
	batchMost = 64
	queueMost = 512
)

// client is the facade of rueidis for one server: it owns every goroutine that
// may block on the network, and nobody else calls rueidis. Servers share none of
// this, so that one that hangs takes no worker from the others.
type client struct {
	addr    string
	redis   rueidis.Client
	fence   *fence   // of this server's clock
	breaker *breaker // whether this server is worth asking
	metrics *metrics
	dial    func(ctx context.Context, address string) (net.Conn, error) // nil: TCP

	hint   chan struct{} // of capacity 1: probe now
	groups sync.Pool     // of *groups
	queue  chan *call    // from callers to workers; never closed
	quit   chan struct{} // closed to end the workers
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // open ones, to cut them off at the end
	ended bool
}

// newClient connects to the server at addr. One that cannot be reached is no
// error: rueidis dials again with the next call.
func newClient(o Options, addr string, m *metrics, changed func(c *client, open bool, why string)) (*client, error) {
	c := &client{
		addr: addr, fence: &fence{base: time.Now()}, metrics: m, dial: o.DialCtxFn,
		hint: make(chan struct{}, 1), queue: make(chan *call, queueMost), quit: make(chan struct{}),
		conns: map[net.Conn]struct{}{},
	}
	c.breaker = newBreaker(time.Now(), func(open bool, why string) { changed(c, open, why) })
	var err error
	if c.redis, err = rueidis.NewClient(c.options(o)); c.redis == nil {
		return nil, fmt.Errorf("redisstore: client for %s: %w", addr, err)
	}
	return c, nil
}

// options are the settings under which rueidis is safe to use. It declares a
// silent connection dead after at most 2 × KeepAlive + ConnWriteTimeout.
func (c *client) options(o Options) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{c.addr}, Username: o.Username, Password: o.Password, SelectDB: o.Database,
		TLSConfig: o.TLSConfig, ClientName: "headway",
		// Script calls must not be repeated by anybody who cannot know whether
		// they ran. The cache needs CLIENT TRACKING, for nothing here.
		DisableRetry: true, DisableCache: true, ForceSingleClient: true,
		// A ping after KeepAlive of silence, unanswered for ConnWriteTimeout, ends
		// a connection and so frees the workers that wait on it.
		ConnWriteTimeout:  max(500*time.Millisecond, 5*o.Timeout),
		Dialer:            net.Dialer{Timeout: max(200*time.Millisecond, 4*o.Timeout), KeepAlive: 250 * time.Millisecond},
		DialCtxFn:         c.dialConn,
		PipelineMultiplex: -1, // one connection: calls arrive in the order they left
	}
}

// dialConn makes one connection and lets the fence start anew.
func (c *client) dialConn(ctx context.Context, addr string, d *net.Dialer, conf *tls.Config) (net.Conn, error) {
	c.fence.connected()
	conn, err := c.open(ctx, addr, d, conf)
	if err != nil {
		return nil, &dialError{err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		conn.Close()
		return nil, &dialError{net.ErrClosed}
	}
	tracked := &trackedConn{Conn: conn, client: c}
	c.conns[tracked] = struct{}{}
	return tracked, nil
}

func (c *client) open(ctx context.Context, addr string, d *net.Dialer, conf *tls.Config) (net.Conn, error) {
	switch {
	case c.dial != nil:
		return c.dial(ctx, addr)
	case conf != nil:
		return (&tls.Dialer{NetDialer: d, Config: conf}).DialContext(ctx, "tcp", addr)
	}
	return d.DialContext(ctx, "tcp", addr)
}

// trackedConn forgets itself when it is closed, and what the fence knew: the next
// connection may lead to another server, and its first fence must not be made by
// the clock of this one.
type trackedConn struct {
	net.Conn
	client *client
}

func (t *trackedConn) Close() error {
	t.client.fence.connected()
	t.client.mu.Lock()
	delete(t.client.conns, t)
	t.client.mu.Unlock()
	return t.Conn.Close()
}

// start runs the workers; finish gets every call that has been run.
func (c *client) start(finish func(*client, []*call)) {
	for range workers {
		c.wg.Go(func() { c.work(finish) })
	}
}

// close cuts every connection, which frees all workers, and waits for them.
// rueidis alone would first wait up to a second for a silent server.
func (c *client) close() {
	close(c.quit)
	c.mu.Lock()
	c.ended = true
	open := make([]net.Conn, 0, len(c.conns))
	for conn := range c.conns {
		open = append(open, conn)
	}
	c.mu.Unlock()
	for _, conn := range open {
		conn.Close()
	}
	c.wg.Wait()
	c.redis.Close()
}

// work takes whatever is queued, up to a batch, and runs it as one pipeline. It
// never waits for a batch to fill: batches grow by themselves when calls come
// faster than replies, and are of one call when they don't.
func (c *client) work(finish func(*client, []*call)) {
	batch := make([]*call, 0, batchMost)
	for {
		select {
		case <-c.quit:
			return
		case first := <-c.queue:
			batch = append(batch[:0], first)
		}
	fill:
		for len(batch) < batchMost {
			select {
			case next := <-c.queue:
				batch = append(batch, next)
			default:
				break fill
			}
		}
		c.run(batch)
		finish(c, batch)
		clear(batch)
	}
}

// run executes calls and fills in their reply or error. It returns when rueidis
// does, however long that takes.
func (c *client) run(batch []*call) {
	gs, _ := c.groups.Get().(*groups)
	if gs == nil {
		gs = &groups{}
	}
	defer c.groups.Put(gs)
	c.send(gs, c.ask(batch))
	again := c.again(gs)
	gs.reset()
	if len(again) > 0 {
		c.send(gs, again)
		gs.reset()
	}
}

// again lists the calls of which an error reply proves that nothing ran, and
// which may fare better now.
func (c *client) again(gs *groups) (list []*call) {
	for _, g := range gs.all() {
		err := g.calls[0].err
		switch {
		case err.missing():
			// Load what is missing and send again.
			if err := c.load(g.calls[0].script); err != nil {
				g.fail(err, ranNot)
				continue
			}
		case err != nil && err.kind == kindScript && len(g.calls) > 1:
			// One of their keys holds something that no script wrote. Each alone, so
			// that only those who name it fail.
			for _, call := range g.calls {
				call.alone = true
			}
		default:
			continue
		}
		list = append(list, g.calls...)
	}
	return list
}

// send runs those of batch that somebody still waits for. The others were given
// up in the queue; not sending them is the surest fence.
func (c *client) send(gs *groups, batch []*call) {
	now := time.Now()
	for _, call := range batch {
		call.err, call.ran = errNotSent, ranNot
		if call.state.Load() != waiting || !now.Before(call.until) {
			continue
		}
		if err := c.stamp(call); err != nil {
			call.err = err
			continue
		}
		gs.add(call)
	}
	cmds := make(rueidis.Commands, 0, gs.used)
	for _, g := range gs.all() {
		cmd, err := c.command(g)
		if g.sent = err == nil; g.sent {
			cmds = append(cmds, cmd)
		} else {
			g.fail(err, ranNot)
		}
	}
	if len(cmds) > 0 {
		c.deliver(gs, cmds)
	}
}

// deliver sends one pipeline and hands out its replies.
func (c *client) deliver(gs *groups, cmds rueidis.Commands) {
	// One pair of instants serves the whole pipeline: its first reply was made
	// after sent, its last before received.
	gen, sent := c.fence.generation(), time.Now()
	results, err := c.pipeline(cmds)
	received := time.Now()
	var first, last int64
	for _, g := range gs.all() {
		if !g.sent {
			continue
		}
		if err != nil {
			g.fail(err, ranUnknown)
			continue
		}
		now := g.answer(results[0])
		results = results[1:]
		if now > 0 {
			last = now
			if first == 0 {
				first = last
			}
		}
	}
	if first > 0 {
		c.fence.observe(gen, sent, received, first, last)
	}
}

// pipeline is the one door to rueidis. It panics on keys of several slots, so
// whatever it panics with becomes an error of this batch.
func (c *client) pipeline(cmds rueidis.Commands) (results []rueidis.RedisResult, err *failure) {
	defer func() {
		if p := recover(); p != nil {
			err = &failure{kindPanic, fmt.Errorf("rueidis: %v", p)}
		}
	}()
	return c.redis.DoMulti(context.Background(), cmds...), nil
}

// command builds EVALSHA of a group, with the fence of a single call in front
// of its arguments.
func (c *client) command(g *group) (cmd rueidis.Completed, err *failure) {
	defer func() {
		if p := recover(); p != nil {
			err = &failure{kindPanic, fmt.Errorf("rueidis: %v", p)}
		}
	}()
	first := g.calls[0]
	keys, args := g.spell()
	b := c.redis.B().Arbitrary("EVALSHA", first.script.SHA, strconv.Itoa(len(keys))).Keys(keys...)
	if first.script.Fenced {
		b = b.Args(strconv.FormatInt(first.notAfter, 10))
	}
	if first.document {
		c.metrics.calls.count("eval")
	} else {
		c.metrics.calls.count(first.script.Name)
	}
	if first.script == &lua.Admit {
		c.metrics.calls.decisions.Add(uint64(len(g.calls)))
	}
	return b.Args(args...).Build(), nil
}

// stamp fences a call that needs it.
func (c *client) stamp(call *call) (err *failure) {
	if call.script.Fenced || call.script == &lua.Admit {
		call.notAfter, err = c.notAfter(call.until)
	}
	return err
}

// notAfter converts a deadline into Redis time, asking for it when nothing is
// known about the present connection's server.
func (c *client) notAfter(until time.Time) (int64, *failure) {
	if us, known := c.fence.at(until); known {
		return us, nil
	}
	gen, sent := c.fence.generation(), time.Now()
	t, err := c.redis.Do(context.Background(), c.redis.B().Time().Build()).AsStrSlice()
	if err != nil || len(t) != 2 {
		f, _ := classify(err)
		return 0, f
	}
	s, _ := strconv.ParseInt(t[0], 10, 64)
	us, _ := strconv.ParseInt(t[1], 10, 64)
	now := s*1_000_000 + us
	c.metrics.calls.count("time")
	c.fence.observe(gen, sent, time.Now(), now, now)
	if us, known := c.fence.at(until); known {
		return us, nil
	}
	// Connecting raced with the answer: this bound is of the new connection.
	c.fence.observe(c.fence.generation(), sent, time.Now(), now, now)
	us, _ = c.fence.at(until)
	return us, nil
}

// load makes the server know a script, e.g. after a restart or SCRIPT FLUSH.
func (c *client) load(s *lua.Script) *failure {
	err := c.redis.Do(context.Background(), c.redis.B().ScriptLoad().Script(s.Source).Build()).Error()
	if err != nil {
		f, _ := classify(err)
		return f
	}
	return nil
}

// parse reads a reply of flat numbers, at least a status and a time. Tags and
// virtual times come as text, for Redis cuts numbers to integers; they are
// kept as the bits of their float64.
func parse(into []int64, r rueidis.RedisResult) ([]int64, *failure, ran) {
	list, err := r.ToArray()
	if err != nil {
		f, ran := classify(err)
		return into, f, ran
	}
	for i := range list {
		n, err := list[i].ToInt64()
		if err != nil {
			tag, err := list[i].AsFloat64()
			if err != nil {
				return into, errReply, ranUnknown
			}
			n = int64(math.Float64bits(tag))
		}
		into = append(into, n)
	}
	if len(into) < 2 {
		return into, errReply, ranUnknown
	}
	return into, nil, ranNot
}
