package memstore

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
	"github.com/headway-limiter/headway/lua"
)

// raw is the core at the level of script calls, with a clock of its own.
type raw struct {
	core *core
	now  int64
}

func newRaw() *raw { return &raw{core: newCore(), now: 1_800_000_000_000_123} }

func (r *raw) Run(c storetest.Call) []int64 { return r.At(r.now, c) }

func (r *raw) Wait(d time.Duration) { r.now += d.Microseconds() }

func (r *raw) Back(d time.Duration) { r.now -= d.Microseconds() }

func (r *raw) State() string {
	var lines []string
	for k, b := range r.core.buckets {
		lines = append(lines, fmt.Sprintf("%v=%+v", k, b))
	}
	for k, l := range r.core.leases {
		lines = append(lines, fmt.Sprintf("%v=%+v until %d", k, l.entries, l.gone))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// At answers as the script would at now.
func (r *raw) At(now int64, c storetest.Call) []int64 {
	k := call{notAfter: c.NotAfter, inc: c.Inc, seq: c.Seq, ttl: c.TTL}
	if k.notAfter == 0 {
		k.notAfter = 1<<53 - 1
	}
	var buckets []bucketArg
	for _, b := range c.Buckets {
		buckets = append(buckets, bucketArg{
			key: limiter.BucketID{ID: limiter.ID(b.Key)}, limit: b.Limit, period: b.Period, burst: b.Burst,
			cost: b.Amount, maxDebt: b.MaxDebt,
		})
	}
	var leases []leaseArg
	for _, s := range c.Slots {
		leases = append(leases, leaseArg{key: limiter.SlotID{ID: limiter.ID(s.Key)}, cap: s.Cap, held: s.Held, want: s.Want})
	}
	return r.flat(now, c, k, buckets, leases)
}

func (r *raw) flat(now int64, c storetest.Call, k call, buckets []bucketArg, leases []leaseArg) []int64 {
	reply := []int64{1, now}
	three := func(states []leaseState) {
		for _, s := range states {
			reply = append(reply, s.before, s.count, s.total)
		}
	}
	switch c.Op {
	case storetest.Admit:
		a := r.core.admit(now, k, buckets, leases)
		if reply[0] = a.status; a.status == statusLate {
			return reply
		}
		for _, l := range a.buckets {
			reply = append(reply, l.remaining, l.wait)
		}
		return append(reply, a.leases...)
	case storetest.Settle:
		status, remaining, states := r.core.settle(now, k, c.Retry, buckets, leases)
		reply[0] = status
		reply = append(reply, remaining...)
		three(states)
	case storetest.Lease:
		three(r.core.sync(now, k, leases))
	case storetest.Inspect:
		levels, states := r.core.inspect(now, k.inc, buckets, leases)
		for _, l := range levels {
			reply = append(reply, l.remaining, l.wait)
		}
		for _, s := range states {
			reply = append(reply, s.count, s.total)
		}
	}
	return reply
}

// redis is a server, real or not, at the level of script calls.
type redis struct {
	t    *testing.T
	conn *redisproc.Conn
	mini *miniredis.Miniredis // nil: a real server, whose clock nobody can set
	now  time.Time            // of mini
}

func dial(t *testing.T, addr string) *redis {
	t.Helper()
	conn, err := redisproc.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &redis{t: t, conn: conn}
}

func newMini(t *testing.T) *redis {
	m := miniredis.RunT(t)
	r := dial(t, m.Addr())
	r.mini, r.now = m, time.UnixMicro(1_800_000_000_000_123)
	m.SetTime(r.now)
	m.ClockTTL(true)
	return r
}

func newReal(t *testing.T) *redis { return dial(t, redisproc.Start(t).Addr()) }

func (r *redis) do(args ...string) any {
	r.t.Helper()
	reply, err := r.conn.Do(args...)
	if err != nil {
		r.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// Wait moves the clock, or lets a real server sleep, to the µs.
func (r *redis) Wait(d time.Duration) {
	if r.mini != nil {
		r.now = r.now.Add(d)
		r.mini.SetTime(r.now)
		return
	}
	r.do("DEBUG", "SLEEP", strconv.FormatFloat(d.Seconds(), 'f', 6, 64))
}

// Back sets the clock back, or every stamp forward.
func (r *redis) Back(d time.Duration) {
	if r.mini != nil {
		r.Wait(-d)
		return
	}
	for _, key := range r.do("KEYS", "hw:{hw}:b:*").([]any) {
		tokens, stamp, _ := strings.Cut(r.do("GET", key.(string)).(string), ":")
		us, _ := strconv.ParseInt(stamp, 10, 64)
		r.do("SET", key.(string), fmt.Sprintf("%s:%d", tokens, us+d.Microseconds()), "KEEPTTL")
	}
}

func (r *redis) State() string {
	var lines []string
	for _, k := range r.do("KEYS", "*").([]any) {
		key, value := k.(string), ""
		if r.do("TYPE", key) == "string" {
			value = r.do("GET", key).(string)
		} else {
			fields := map[string]string{}
			all := r.do("HGETALL", key).([]any)
			for i := 0; i < len(all); i += 2 {
				fields[all[i].(string)] = all[i+1].(string)
			}
			for _, f := range slices.Sorted(maps.Keys(fields)) {
				value += f + "=" + fields[f] + " "
			}
		}
		lines = append(lines, fmt.Sprintf("%s: %s until %v", key, value, r.do("PEXPIRETIME", key)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (r *redis) Run(c storetest.Call) []int64 {
	r.t.Helper()
	script, args := arguments(c)
	reply := r.do(append([]string{"EVAL", script.Source}, args...)...).([]any)
	flat := make([]int64, len(reply))
	for i, v := range reply {
		flat[i] = v.(int64)
	}
	return flat
}

// arguments spells a call as the scripts' headers say.
func arguments(c storetest.Call) (lua.Script, []string) {
	args := []string{strconv.Itoa(len(c.Buckets) + len(c.Slots))}
	add := func(ns ...int64) {
		for _, n := range ns {
			args = append(args, strconv.FormatInt(n, 10))
		}
	}
	for _, b := range c.Buckets {
		args = append(args, "hw:{hw}:b:user:"+b.Key)
	}
	for _, s := range c.Slots {
		args = append(args, "hw:{hw}:l:user:"+s.Key)
	}
	fence := c.NotAfter
	if fence == 0 {
		fence = 1<<53 - 1
	}
	script := []lua.Script{lua.Admit, lua.Settle, lua.Lease, lua.Inspect}[c.Op]
	switch c.Op {
	case storetest.Admit, storetest.Settle:
		add(fence)
		args = append(args, c.Inc)
		add(c.Seq, c.TTL, int64(len(c.Buckets)))
		if c.Op == storetest.Settle {
			add(map[bool]int64{true: 1}[c.Retry])
		}
	case storetest.Lease:
		args = append(args, c.Inc)
		add(c.Seq, c.TTL)
	case storetest.Inspect:
		args = append(args, c.Inc)
		add(int64(len(c.Buckets)))
	}
	for _, b := range c.Buckets {
		add(b.Limit, b.Period, b.Burst, b.Amount, b.MaxDebt)
	}
	for _, s := range c.Slots {
		switch c.Op {
		case storetest.Admit:
			add(s.Cap, s.Want)
		case storetest.Settle, storetest.Lease:
			add(s.Held, s.Want)
		}
	}
	return script, args
}

func TestProperties(t *testing.T) {
	t.Run("core", func(t *testing.T) {
		storetest.Properties(t, func(*testing.T) storetest.Raw { return newRaw() })
	})
	t.Run("miniredis", func(t *testing.T) {
		storetest.Properties(t, func(t *testing.T) storetest.Raw { return newMini(t) })
	})
	t.Run("redis", func(t *testing.T) {
		storetest.Properties(t, func(t *testing.T) storetest.Raw { return newReal(t) })
	})
}

// TestTwin: the core and the scripts are one, on both servers.
func TestTwin(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) { storetest.Twin(t, newMini(t), newRaw(), 3000, true) })
	t.Run("redis", func(t *testing.T) { storetest.Twin(t, newReal(t), newRaw(), 5000, false) })
}
