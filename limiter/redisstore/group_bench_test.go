package redisstore_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
	"github.com/headway-limiter/headway/lua"
)

// decisions spells an admit of n decisions over dims buckets each, and a counter
// if lease. All have keys of their own, or, if hot, the same.
func (p *poolBench) decisions(n, dims int, lease, hot bool, seq int) []string {
	const limit = "1000000000000000"
	slots := 0
	if lease {
		slots = 1
	}
	var keys, counters []string
	args := []string{"a1", "10000", strconv.Itoa(dims), strconv.Itoa(slots), "0", "1", limit, "1000000", limit, "0"}
	for i := range n {
		who := i
		if hot {
			who = 0
		}
		args = append(args, never, strconv.Itoa(seq+i))
		for d := range dims {
			keys = append(keys, fmt.Sprintf("hw:{hw}:b:d%d:%032x", d, who))
			args = append(args, "1", "1000000")
		}
		if lease {
			counters = append(counters, fmt.Sprintf("hw:{hw}:l:d0:%032x", who))
			args = append(args, "1000000", "1")
		}
	}
	return p.evalsha(lua.Admit, append(keys, counters...), args)
}

// floor is a script that asks for the time, reads and writes as many buckets with a
// lifetime, and decides nothing.
func (p *poolBench) floor(dims int) []string {
	const source = `local time, stored = redis.call('TIME'), redis.call('MGET', unpack(KEYS))
local reply = { 1, time[1] * 1000000 + time[2] }
for i = 1, #KEYS do
  redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2])
  reply[i + 2] = stored[i] and 1 or 0
end
return reply`
	sum := sha1.Sum([]byte(source))
	var keys []string
	for d := range dims {
		keys = append(keys, fmt.Sprintf("hw:{hw}:floor:d%d:%032x", d, 0))
	}
	const bucket = "999999000000:1700000000000000:1000000000000000:1000000000000000:1000000"
	return p.evalsha(lua.Script{Source: source, SHA: hex.EncodeToString(sum[:])}, keys, []string{bucket, "1001"})
}

// BenchmarkDecisions measures what a decision costs the server, in its own time,
// by how many of them share a call: the fastest of many rounds. "x-floor" is that
// of the floor in the same rounds.
func BenchmarkDecisions(b *testing.B) {
	server := redisproc.Start(b)
	conn, err := redisproc.Dial(server.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	p := &poolBench{B: b, server: server, conn: conn, loaded: map[string]bool{}}
	for _, shape := range []struct {
		name       string
		dims       int
		lease, hot bool
	}{{"1", 1, false, false}, {"1-hot", 1, false, true}, {"3", 3, false, false}, {"3-lease", 3, true, false}} {
		for _, n := range []int{1, 2, 4, 16} {
			b.Run(fmt.Sprintf("limits=%s/together=%d", shape.name, n), func(b *testing.B) {
				p.B = b
				us, least, seq := math.Inf(1), math.Inf(1), 1
				for range max(20, b.N/roundCalls) {
					us = min(us, p.costs(roundCalls, func(int) []string {
						seq += n
						return p.decisions(n, shape.dims, shape.lease, shape.hot, seq)
					}))
					least = min(least, p.cost(roundCalls, p.floor(shape.dims)...))
				}
				b.ReportMetric(us, "µs/call")
				b.ReportMetric(us/float64(n), "µs/decision")
				b.ReportMetric(us/float64(n)/least, "x-floor")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
