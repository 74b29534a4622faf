package redisstore_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
	"github.com/headway-limiter/headway/lua"
)

// poolBench calls scripts on a server of its own and asks it for their cost.
type poolBench struct {
	*testing.B
	server *redisproc.Server
	conn   *redisproc.Conn
	loaded map[string]bool
}

func (p *poolBench) do(args ...string) any {
	p.Helper()
	reply, err := p.conn.Do(args...)
	if err != nil {
		p.Fatalf("%v: %v", args, err)
	}
	return reply
}

// roundCalls is how many calls are measured at once. Of all rounds the fastest
// counts: whatever else runs on the machine only adds.
const roundCalls = 40

// cost runs n commands in one pipeline and returns the server's own time for each
// in µs, from INFO commandstats: the network and this process don't count.
func (p *poolBench) cost(n int, command ...string) float64 {
	p.Helper()
	return p.costs(n, func(int) []string { return command })
}

// costs does so for commands that differ.
func (p *poolBench) costs(n int, command func(i int) []string) float64 {
	p.Helper()
	name := ""
	p.do("CONFIG", "RESETSTAT")
	for i := range n {
		c := command(i)
		name = strings.ToLower(c[0])
		if err := p.conn.Send(c...); err != nil {
			p.Fatal(err)
		}
	}
	for range n {
		if _, err := p.conn.Receive(); err != nil {
			p.Fatalf("%s: %v", name, err)
		}
	}
	for line := range strings.Lines(p.do("INFO", "commandstats").(string)) {
		rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":")
		if !ok {
			continue
		}
		_, text, _ := strings.Cut(rest, "usec_per_call=")
		text, _, _ = strings.Cut(text, ",")
		us, err := strconv.ParseFloat(text, 64)
		if err != nil {
			p.Fatalf("%q: %v", line, err)
		}
		return us
	}
	p.Fatalf("no statistics of %s", name)
	return 0
}

// evalsha spells a call, loading the script first.
func (p *poolBench) evalsha(s lua.Script, keys, args []string) []string {
	if !p.loaded[s.SHA] {
		p.do("SCRIPT", "LOAD", s.Source)
		p.loaded[s.SHA] = true
	}
	return append(append([]string{"EVALSHA", s.SHA, strconv.Itoa(len(keys))}, keys...), args...)
}

const (
	never      = "9007199254740991"
	poolBucket = "hw:{hw}:b:model:0123456789abcdef0123456789abcdef"
)

// pool is a call of n bids, each of one token and another tenant, by
// incarnation inc. A rich pool covers every bid, a poor one hardly ever one.
func (p *poolBench) pool(inc string, rich bool, n int) []string {
	limit, burst := "1000000000000000", "1000000000000000"
	if !rich {
		limit, burst = "1000000", "10000000" // one token per 1000 s
	}
	base := "hw:{hw}:p:model:0123456789abcdef0123456789abcdef"
	keys := []string{poolBucket, base + ":t", base + ":c", base + ":v"}
	args := []string{never, inc, "10000", "50000", limit, "1000000000", burst, "8", "10000", "0", "0", "0", strconv.Itoa(n)}
	for i := range n {
		args = append(args, fmt.Sprintf("%032x", i), "1000000", "1", "-1", "1", "0", "0")
	}
	return p.evalsha(lua.Pool, keys, args)
}

// prepare makes a pool of which others hold claims, each on a head of the fleet. A
// rich one is forgotten afterwards, for it would have to agree on its rate first.
func (p *poolBench) prepare(claims int, rich bool) {
	p.do("FLUSHALL")
	for range 10 { // the bucket of a poor pool is empty afterwards
		p.do(p.pool("0000000000000000", false, 1)...)
	}
	for i := range claims {
		p.do(p.pool(fmt.Sprintf("%016x", i), false, 1)...)
	}
	if rich {
		p.do("DEL", poolBucket)
	}
}

// BenchmarkPool measures a call for turns on a real server, in the server's own
// time, as multiples of a one-dimension admit and of a GET in the same run.
func BenchmarkPool(b *testing.B) {
	server := redisproc.Start(b)
	conn, err := redisproc.Dial(server.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	p := &poolBench{B: b, server: server, conn: conn, loaded: map[string]bool{}}
	admit := p.evalsha(lua.Admit, []string{"hw:{hw}:b:user:0123456789abcdef0123456789abcdef"},
		[]string{"a1", "10000", "1", "0", "0", "1", "1000000000000000", "1000000", "1000000000000000", "0", never, "1", "1", "1000000"})
	for _, claims := range []int{1, 8, 32} {
		for _, c := range []struct {
			name string
			rich bool
			bids int
		}{{"deny8", false, 8}, {"grant1", true, 1}, {"grant8", true, 8}} {
			b.Run(fmt.Sprintf("%s/claims=%d", c.name, claims), func(b *testing.B) {
				p.B = b
				p.prepare(claims, c.rich)
				call := p.pool("ffffffffffffffff", c.rich, c.bids)
				us, one, get := math.Inf(1), math.Inf(1), math.Inf(1)
				for range max(2, b.N/roundCalls) {
					us = min(us, p.cost(roundCalls, call...))
					one = min(one, p.cost(roundCalls, admit...))
				}
				for range 5 { // statistics are in whole µs, of which a GET takes a fraction
					get = min(get, p.cost(1000, "GET", "absent"))
				}
				b.ReportMetric(us, "µs/call")
				b.ReportMetric(one, "µs/admit")
				b.ReportMetric(us/one, "x-admit")
				b.ReportMetric(us/get, "x-get")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
