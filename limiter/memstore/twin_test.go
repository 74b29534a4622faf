package memstore

import (
	"fmt"
	"maps"
	"math"
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

func (r *raw) Flush() { r.core = newCore() }

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

// admit is one decision of a call. The core makes one at a time: what a call of
// several does is what it says they would do one after the other.
func (r *raw) admit(now int64, c storetest.Call, k call) (status int64, rest []int64) {
	a := r.core.admit(now, k, bucketArgs(c.Buckets), leaseArgs(c.Slots))
	for _, l := range a.buckets {
		rest = append(rest, l.remaining, l.wait)
	}
	rest = append(rest, a.leases...)
	for i, b := range c.Buckets {
		if b.InTurn {
			rest = append(rest, map[bool]int64{true: 1}[a.status != statusLate && a.claimed[i]])
		}
	}
	return a.status, rest
}

// fence is the not-after of a call.
func fence(c storetest.Call) int64 {
	if c.NotAfter == 0 {
		return 1<<53 - 1
	}
	return c.NotAfter
}

// At answers as the script would at now.
func (r *raw) At(now int64, c storetest.Call) []int64 {
	k := call{notAfter: fence(c), inc: c.Inc, seq: c.Seq, ttl: c.TTL}
	return r.flat(now, c, k, bucketArgs(c.Buckets), leaseArgs(c.Slots))
}

func bucketArgs(list []storetest.Bucket) (args []bucketArg) {
	for _, b := range list {
		args = append(args, bucketArg{
			key: limiter.BucketID{ID: limiter.ID(b.Key)}, limit: b.Limit, period: b.Period, burst: b.Burst,
			cost: b.Amount, maxDebt: b.MaxDebt, inTurn: b.InTurn, tenant: limiter.ID(b.Tenant), weight: b.Weight,
		})
	}
	return args
}

func leaseArgs(list []storetest.Slot) (args []leaseArg) {
	for _, s := range list {
		args = append(args, leaseArg{key: limiter.SlotID{ID: limiter.ID(s.Key)}, cap: s.Cap, held: s.Held, want: s.Want})
	}
	return args
}

// pool answers a call for turns, as lua/pool.lua does.
func (r *raw) pool(now int64, c storetest.Call, k call, bucket bucketArg) []int64 {
	var bids []*bid
	for _, b := range c.Bids {
		bids = append(bids, &bid{
			tenant: limiter.ID(b.Tenant), cost: b.Cost, weight: b.Weight, since: b.Since, seq: b.Seq,
			buckets: bucketArgs(b.Buckets), leases: leaseArgs(b.Slots),
		})
	}
	a := stock{bucket: bucket}
	for _, sl := range c.Slots {
		a.slots, a.held = limiter.SlotID{ID: limiter.ID(sl.Key)}, sl.Held
	}
	t := r.core.turns(now, k, turnsArg{c.Grace, c.Rest, c.More, int(c.Most)}, a, bids)
	switch {
	case t.late:
		return []int64{statusLate, now}
	case t.stale:
		return []int64{statusStale, now}
	}
	tag := func(x float64) int64 { return int64(math.Float64bits(x)) }
	reply := []int64{1, now, t.wait, t.alone, tag(t.before), tag(t.after)}
	for _, b := range bids {
		state := int64(b.state)
		if b.overtaken {
			state++
		}
		reply = append(reply, state, tag(b.finish), tag(b.since))
		if b.state == limiter.BidWaits {
			reply = append(reply, make([]int64, 2*len(b.buckets)+len(b.leases))...)
			continue
		}
		for _, l := range b.rest.buckets {
			reply = append(reply, l.remaining, l.wait)
		}
		reply = append(reply, b.rest.leases...)
	}
	return reply
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
		status, rest := r.admit(now, c, k)
		reply = append([]int64{status, now}, rest...)
		for _, also := range c.Also {
			k.seq, k.notAfter = also.Seq, fence(also)
			status, rest := r.admit(now, also, k)
			reply = append(append(reply, status), rest...)
		}
	case storetest.Pool:
		return r.pool(now, c, k, buckets[0])
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
	mini *miniredis.Miniredis    // nil: a real server, whose clock nobody can set
	now  time.Time               // of mini
	edit func(lua.Script) string // spoils a script on purpose; nil: none
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
		if len(args) > 2 && args[0] == "EVAL" {
			args = args[2:]
		}
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
		parts := strings.Split(r.do("GET", key.(string)).(string), ":")
		for i := 1; i < len(parts); i += 3 { // stamp and hold
			if us, _ := strconv.ParseInt(parts[i], 10, 64); us > 0 {
				parts[i] = fmt.Sprint(us + d.Microseconds())
			}
		}
		r.do("SET", key.(string), strings.Join(parts, ":"), "KEEPTTL")
	}
}

func (r *redis) Flush() { r.do("FLUSHALL") }

func (r *redis) State() string {
	var lines []string
	for _, k := range r.do("KEYS", "*").([]any) {
		key, value := k.(string), ""
		switch r.do("TYPE", key) {
		case "string":
			value = r.do("GET", key).(string)
		case "zset":
			value = fmt.Sprint(r.do("ZRANGE", key, "0", "-1", "WITHSCORES"))
		default:
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
	source := script.Source
	if r.edit != nil {
		source = r.edit(script)
	}
	reply := r.do(append([]string{"EVAL", source}, args...)...).([]any)
	if c.Op == storetest.Admit { // as one decision would have it: status, time, rest
		reply = append([]any{reply[2], reply[1]}, reply[3:]...)
	}
	flat := make([]int64, len(reply))
	for i, v := range reply {
		if text, ok := v.(string); ok {
			tag, err := strconv.ParseFloat(text, 64)
			if err != nil {
				r.t.Fatalf("reply %v: %v", reply, err)
			}
			v = int64(math.Float64bits(tag))
		}
		flat[i] = v.(int64)
	}
	return flat
}

// spelling collects the keys and arguments of a call as text.
type spelling struct{ keys, args []string }

func (s *spelling) int(ns ...int64) {
	for _, n := range ns {
		s.args = append(s.args, strconv.FormatInt(n, 10))
	}
}

func (s *spelling) float(xs ...float64) {
	for _, x := range xs {
		s.args = append(s.args, strconv.FormatFloat(x, 'g', 17, 64))
	}
}

func (s *spelling) buckets(list []storetest.Bucket) {
	for _, b := range list {
		s.keys = append(s.keys, "hw:{hw}:b:user:"+b.Key)
		s.int(b.Limit, b.Period, b.Burst, b.Amount, b.MaxDebt)
	}
}

func (s *spelling) slots(op storetest.Op, list []storetest.Slot) {
	for _, sl := range list {
		s.keys = append(s.keys, "hw:{hw}:l:user:"+sl.Key)
		switch op {
		case storetest.Admit, storetest.Pool:
			s.int(sl.Cap, sl.Want)
		case storetest.Settle, storetest.Lease:
			s.int(sl.Held, sl.Want)
		}
	}
}

// pool names a key of the turns at a bucket: c claims, t tags.
func (s *spelling) pool(b storetest.Bucket, part string) {
	s.keys = append(s.keys, "hw:{hw}:p:user:"+b.Key+":"+part)
}

// decisions spells an admit: every rate once, then each decision.
func (s *spelling) decisions(c storetest.Call) {
	all := append([]storetest.Call{c}, c.Also...)
	type rate struct{ limit, period, burst, maxDebt int64 }
	var rates []rate
	var claims []storetest.Bucket
	rateOf := func(b storetest.Bucket) rate { return rate{b.Limit, b.Period, b.Burst, b.MaxDebt} }
	for _, d := range all {
		for _, b := range d.Buckets {
			s.keys = append(s.keys, "hw:{hw}:b:user:"+b.Key)
			if !slices.Contains(rates, rateOf(b)) {
				rates = append(rates, rateOf(b))
			}
			if b.InTurn {
				claims = append(claims, b)
			}
		}
	}
	s.int(c.TTL, int64(len(c.Buckets)), int64(len(c.Slots)), int64(len(claims)/len(all)), int64(len(rates)))
	for _, r := range rates {
		s.int(r.limit, r.period, r.burst, r.maxDebt)
	}
	for _, d := range all {
		s.int(fence(d), d.Seq)
		for _, b := range d.Buckets {
			s.int(int64(slices.Index(rates, rateOf(b))+1), b.Amount)
		}
		s.slots(storetest.Admit, d.Slots)
	}
	for _, b := range claims {
		s.pool(b, "c")
	}
}

// stock names the keys of a pool.
func (s *spelling) stock(c storetest.Call) (seq, held int64) {
	for _, sl := range c.Slots {
		s.keys = append(s.keys, "hw:{hw}:l:user:"+sl.Key, "hw:{hw}:s:user:"+sl.Key+":t", "hw:{hw}:s:user:"+sl.Key+":c")
		return c.Seq, sl.Held
	}
	s.keys = append(s.keys, "hw:{hw}:b:user:"+c.Buckets[0].Key)
	s.pool(c.Buckets[0], "t")
	s.pool(c.Buckets[0], "c")
	return 0, 0
}

// turns spells a call for turns.
func (s *spelling) turns(c storetest.Call) {
	b := c.Buckets[0]
	seq, held := s.stock(c)
	s.int(c.TTL, c.Grace, b.Limit, b.Period, b.Burst, c.Most, c.Rest, c.More, seq, held, int64(len(c.Bids)))
	for _, bid := range c.Bids {
		s.args = append(s.args, bid.Tenant)
		s.int(bid.Cost)
		s.float(bid.Weight, bid.Since)
		s.int(bid.Seq, int64(len(bid.Buckets)), int64(len(bid.Slots)))
		s.buckets(bid.Buckets)
		s.slots(c.Op, bid.Slots)
	}
}

// corrections spells the end of a call to settle: which turns it corrects.
func (s *spelling) corrections(list []storetest.Bucket) {
	for i, b := range list {
		if b.Tenant != "" {
			s.pool(b, "t")
			s.int(int64(i + 1))
			s.args = append(s.args, b.Tenant)
			s.float(b.Weight)
		}
	}
}

// arguments spells a call as the scripts' headers say.
func arguments(c storetest.Call) (lua.Script, []string) {
	var s spelling
	if c.Op == storetest.Settle || c.Op == storetest.Pool {
		s.int(fence(c))
	}
	s.args = append(s.args, c.Inc)
	nb, nl := int64(len(c.Buckets)), int64(len(c.Slots))
	switch c.Op {
	case storetest.Admit:
		s.decisions(c)
		return lua.Admit, append(append([]string{strconv.Itoa(len(s.keys))}, s.keys...), s.args...)
	case storetest.Settle:
		s.int(c.Seq, c.TTL, nb, map[bool]int64{true: 1}[c.Retry], nl)
	case storetest.Lease:
		s.int(c.Seq, c.TTL)
	case storetest.Inspect:
		s.int(nb)
	}
	if c.Op == storetest.Pool {
		s.turns(c)
	} else {
		s.buckets(c.Buckets)
		s.slots(c.Op, c.Slots)
	}
	if c.Op == storetest.Settle {
		s.corrections(c.Buckets)
	}
	script := []lua.Script{lua.Admit, lua.Settle, lua.Lease, lua.Inspect, lua.Pool}[c.Op]
	return script, append(append([]string{strconv.Itoa(len(s.keys))}, s.keys...), s.args...)
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

// TestTogether: decisions that share a call are made as if each had its own.
func TestTogether(t *testing.T) {
	storetest.Together(t, newMini(t), newMini(t), storetest.Effort(1000))
}

// TestTwin: the core and the scripts are one, on both servers.
func TestTwin(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) { storetest.Twin(t, newMini(t), newRaw(), storetest.Effort(3000), true) })
	t.Run("redis", func(t *testing.T) { storetest.Twin(t, newReal(t), newRaw(), storetest.Effort(5000), false) })
}
