package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// busy is a digest of so many pools with so many tenants each.
func busy(pools, tenants int) Digest {
	d := Digest{Replica: "gw-1-4711-0a1b2c3d", Incarnation: 1<<63 - 5, Sequence: 123456, Build: "v1.2.3", Config: "abcdef01", InFlight: 250}
	for i := range pools {
		p := Pool{Name: fmt.Sprintf("model:%032x", i), Spacing: 12345678, Depth: 4000 - i}
		for j := range tenants {
			p.Tenants = append(p.Tenants, TenantLoad{Tenant: fmt.Sprintf("%032x", 1000*i+j), Queued: 500 - j, Served: 1e6 / float64(j+1)})
		}
		d.Pools = append(d.Pools, p)
	}
	return d
}

// told is what was heard of so many accounts.
func told(n int) []Throttle {
	var all []Throttle
	for i := range n {
		all = append(all, Throttle{
			Name: fmt.Sprintf("%032x", i), Until: 31 * time.Second, Overload: NoTime, Stopped: -maxSpan, Probed: 0,
			Levels: []QuotaLevel{
				{Unit: "requests", Window: time.Minute, Limit: 600, Period: time.Minute, Windowed: true, End: 17 * time.Second, Remaining: int64(i), Seen: -1234 * time.Millisecond},
				{Unit: "tokens", Scope: "project", Limit: math.MaxInt64, Period: maxSpan, End: maxSpan, Remaining: math.MaxInt64, Seen: -time.Millisecond},
			},
		})
	}
	return all
}

// loaded is what is held and waits at so many agents.
func loaded(n int) []AgentLoad {
	var all []AgentLoad
	for i := range n {
		all = append(all, AgentLoad{Agent: fmt.Sprintf("%032x", i), Held: 300 - i, Waiting: i * 1000})
	}
	return all
}

// TestEncodeSharesWithAgents: agents take a quarter at most, and the first ones stay.
func TestEncodeSharesWithAgents(t *testing.T) {
	d := busy(20, 20)
	d.Throttles, d.Agents = told(100), loaded(200)
	for _, limit := range []int{512, MaxDatagram, 1 << 20} {
		b, omitted := d.Encode(nil, limit)
		got, err := Decode(b)
		if err != nil || len(b) > limit {
			t.Fatalf("%d bytes of %d, %v", len(b), limit, err)
		}
		n := len(got.Agents)
		if n < min(maxAgents, limit/110) || !reflect.DeepEqual(got.Agents, d.Agents[:n]) || omitted < 200-n {
			t.Errorf("limit %d: %d agents are kept, %d omitted", limit, n, omitted)
		}
		if len(got.Pools) < 2 || len(got.Throttles) == 0 {
			t.Errorf("limit %d: %d pools and %d throttles are kept", limit, len(got.Pools), len(got.Throttles))
		}
	}
}

func TestRoundTrip(t *testing.T) {
	tests := map[string]Digest{
		"bare":       {Replica: "r"},
		"extremes":   {Replica: strings.Repeat("n", MaxName), Incarnation: math.MaxUint64, Sequence: math.MaxUint64, InFlight: math.MaxInt64, Pools: []Pool{{Spacing: math.MaxInt64, Depth: math.MaxInt32, Tenants: []TenantLoad{{Queued: math.MaxInt32, Served: math.MaxFloat64}}}}},
		"hex tails":  {Replica: strings.Repeat("0123456789abcdef", 2), Build: "x" + strings.Repeat("f", 32), Config: strings.Repeat("A", 32), Pools: []Pool{{Name: strings.Repeat("0", 33)}}},
		"ordinary":   busy(2, 10),
		"throttles":  {Replica: "r", Pools: busy(1, 1).Pools, Throttles: told(3)},
		"many pools": busy(12, 1),
		"agents":     {Replica: "r", Pools: busy(1, 1).Pools, Throttles: told(1), Agents: loaded(5)},
	}
	for name, d := range tests {
		t.Run(name, func(t *testing.T) {
			b, omitted := d.Encode([]byte("before"), 4096)
			got, err := Decode(bytes.TrimPrefix(b, []byte("before")))
			if err != nil || omitted != 0 {
				t.Fatalf("omitted %d, %v", omitted, err)
			}
			if !reflect.DeepEqual(got, d) {
				t.Errorf("got  %+v\nwant %+v", got, d)
			}
			if _, err := Decode(append(b[len("before"):], "fields of a later version"...)); err != nil {
				t.Errorf("with something appended: %v", err)
			}
		})
	}
}

// TestEncodeFits: whatever is busy, the packet fits, nothing is dropped without
// being counted, and what stays is the busiest.
func TestEncodeFits(t *testing.T) {
	for _, pools := range []int{0, 1, 2, 10, 40, 300} {
		for _, tenants := range []int{0, 1, 5, 60, 300} {
			d := busy(pools, tenants)
			for _, limit := range []int{512, 700, MaxDatagram, 1390} {
				b, omitted := d.Encode(nil, limit)
				if len(b) > limit {
					t.Fatalf("%d pools of %d tenants take %d bytes of %d", pools, tenants, len(b), limit)
				}
				got, err := Decode(b)
				if err != nil {
					t.Fatal(err)
				}
				kept := len(got.Pools)
				for i, p := range got.Pools {
					kept += len(p.Tenants)
					if p.Name != d.Pools[i].Name || p.Depth != d.Pools[i].Depth {
						t.Fatalf("pool %d is %s, want %s", i, p.Name, d.Pools[i].Name)
					}
					for j, load := range p.Tenants {
						if load != d.Pools[i].Tenants[j] {
							t.Fatalf("tenant %d of pool %d is %+v", j, i, load)
						}
					}
				}
				if total := pools + pools*tenants; kept+omitted != total {
					t.Fatalf("%d kept and %d omitted of %d", kept, omitted, total)
				}
				if kept > 0 && omitted > 0 && len(b) < limit-80 {
					t.Errorf("%d pools of %d tenants: %d omitted with %d of %d bytes used", pools, tenants, omitted, len(b), limit)
				}
			}
		}
	}
}

// TestEncodeSharesRoom: the longest queue of a quiet pool goes before the hundredth
// of a busy one.
func TestEncodeSharesRoom(t *testing.T) {
	d := busy(4, 100)
	b, _ := d.Encode(nil, MaxDatagram)
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range got.Pools {
		if n := len(p.Tenants); n < 8 || n > 12 {
			t.Errorf("pool %d has %d tenants of 100", i, n)
		}
	}
}

// TestEncodeRepairs: values that may not be on the wire are clamped.
func TestEncodeRepairs(t *testing.T) {
	d := Digest{Replica: strings.Repeat("r", 500), InFlight: -3, Pools: []Pool{{
		Name: "p", Spacing: -1, Depth: -1,
		Tenants: []TenantLoad{{Tenant: "nan", Served: math.NaN()}, {Tenant: "inf", Served: math.Inf(1)}, {Tenant: "neg", Served: -1, Queued: -5}},
	}}}
	b, _ := d.Encode(nil, 4096)
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	want := Digest{Replica: strings.Repeat("r", MaxName), Pools: []Pool{{Name: "p", Tenants: []TenantLoad{{Tenant: "nan"}, {Tenant: "inf"}, {Tenant: "neg"}}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, _ := busy(2, 3).Encode(nil, 4096)
	for i := range good[2:] { // without the last bytes it is one of before throttles and agents
		if _, err := Decode(good[:i]); !errors.Is(err, ErrDigest) {
			t.Errorf("the first %d of %d bytes: %v", i, len(good), err)
		}
	}
	nameless, _ := Digest{}.Encode(nil, 4096)
	tests := map[string][]byte{
		"another format":  append([]byte{9}, good[1:]...),
		"no name":         nameless,
		"endless number":  append([]byte{format, 2, 'r'}, bytes.Repeat([]byte{0xff}, 40)...),
		"many pools":      append([]byte{format, 2, 'r', 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}, 0xff, 0x01, 1, 2, 3),
		"not a number":    withServed(math.NaN()),
		"negative served": withServed(-1),
		"infinite served": withServed(math.Inf(1)),
	}
	for name, b := range tests {
		if d, err := Decode(b); !errors.Is(err, ErrDigest) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
}

// withServed is an encoded digest whose last eight bytes say f.
func withServed(f float64) []byte {
	b, _ := Digest{Replica: "r", Pools: []Pool{{Name: "p", Tenants: []TenantLoad{{Tenant: "t"}}}}}.Encode(nil, 4096)
	bits := math.Float64bits(f)
	for i := range 8 {
		b[len(b)-8+i] = byte(bits >> (8 * i))
	}
	return b
}

func TestMergeEncodedRefuses(t *testing.T) {
	good := NewTable("a")
	good.Announce(Digest{})
	good.Merge(Digest{Replica: "b"}, ms(0))
	b := good.Encode(ms(0))
	whole, lost := 0, 0
	for i := range b {
		if news, err := NewTable("c").MergeEncoded(b[:i], ms(0)); err != nil {
			lost++
		} else {
			whole += news
		}
	}
	if lost < len(b)-3 || whole > 1 {
		t.Errorf("%d of %d prefixes refused, %d digests from the rest", lost, len(b), whole)
	}
	if _, err := NewTable("c").MergeEncoded(bytes.Repeat(b, maxReplicas), ms(0)); !errors.Is(err, ErrDigest) {
		t.Errorf("an endless table: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, d := range []Digest{{Replica: "r"}, busy(1, 1), busy(3, 20)} {
		b, _ := d.Encode(nil, 4096)
		f.Add(b)
	}
	f.Add([]byte{format, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrDigest) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if len(d.Replica) == 0 || len(d.Replica) > MaxName || len(d.Pools) > maxPools || d.InFlight < 0 {
			t.Fatalf("out of bounds: %+v", d)
		}
		again, omitted := d.Encode(nil, maxDigest)
		if omitted > 0 && len(b) < maxDigest/2 {
			t.Fatalf("%d omitted of a digest of %d bytes", omitted, len(b))
		}
		if back, err := Decode(again); omitted == 0 && (err != nil || !reflect.DeepEqual(back, d)) {
			t.Fatalf("%+v became %+v, %v", d, back, err)
		}
		NewTable("self").MergeEncoded(b, time.Time{})
	})
}

func BenchmarkCodec(b *testing.B) {
	d := busy(2, 20)
	buf, _ := d.Encode(nil, MaxDatagram)
	b.Logf("%d bytes", len(buf))
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.Encode(buf[:0], MaxDatagram)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Decode(buf)
		}
	})
	b.Run("view of 64", func(b *testing.B) {
		table := NewTable("self")
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range 64 {
			d := busy(1+rng.IntN(4), 10)
			d.Replica = fmt.Sprint(i)
			table.Merge(d, epoch)
		}
		b.ReportAllocs()
		for b.Loop() {
			table.View(epoch)
		}
	})
}

// TestEncodeSharesWithThrottles: neither pools nor throttles leave the other without
// room, what is left out is counted, and the first ones stay.
func TestEncodeSharesWithThrottles(t *testing.T) {
	d := busy(20, 20)
	d.Throttles = told(100)
	for _, limit := range []int{512, MaxDatagram} {
		b, omitted := d.Encode(nil, limit)
		if len(b) > limit {
			t.Fatalf("%d bytes of %d", len(b), limit)
		}
		got, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		kept := len(got.Pools) + len(got.Throttles)
		for _, p := range got.Pools {
			kept += len(p.Tenants)
		}
		if kept+omitted != 20+20*20+100 {
			t.Errorf("%d kept, %d omitted", kept, omitted)
		}
		if n := len(got.Throttles); n < limit/300 || !reflect.DeepEqual(got.Throttles, d.Throttles[:n]) {
			t.Errorf("limit %d: %d throttles are kept", limit, n)
		}
		if len(got.Pools) < 3 {
			t.Errorf("limit %d: %d pools are kept", limit, len(got.Pools))
		}
	}
}

// TestEncodeClampsTimes: what is beyond the bounds comes back at the bound, ends
// are never early, and lists are cut.
func TestEncodeClampsTimes(t *testing.T) {
	one := QuotaLevel{Limit: -5, Remaining: -1, Window: -time.Second, Period: 1000 * maxSpan, End: math.MaxInt64, Seen: math.MinInt64 + 1}
	d := Digest{Replica: "r", Throttles: []Throttle{{Until: time.Microsecond, Overload: NoTime, Stopped: NoTime, Probed: NoTime}}}
	for range maxLevels + 5 {
		d.Throttles[0].Levels = append(d.Throttles[0].Levels, one)
	}
	b, _ := d.Encode(nil, 1<<16)
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	th := got.Throttles[0]
	if th.Until != time.Millisecond || th.Overload != NoTime || len(th.Levels) != maxLevels {
		t.Errorf("got %+v", th)
	}
	if want := (QuotaLevel{Period: maxSpan, End: maxSpan, Seen: -maxSpan}); th.Levels[0] != want {
		t.Errorf("got %+v, want %+v", th.Levels[0], want)
	}
}

// TestDecodeBeforeThrottles: digests of programs that know of none can be read.
func TestDecodeBeforeThrottles(t *testing.T) {
	d := busy(2, 3)
	b, _ := d.Encode(nil, MaxDatagram)
	for _, missing := range []int{1, 2} { // the count of agents, and that of throttles
		got, err := Decode(b[:len(b)-missing])
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}
