package storetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// Tag reads a tag or virtual time of a reply.
func Tag(bits int64) float64 { return math.Float64frombits(uint64(bits)) }

// TurnOf is what a reply of Pool says of one bid.
type TurnOf struct {
	State         int64 // 0 waits, 1 granted, 2 blocked by its own limits, 3 overtaken
	Finish, Since float64
}

// TurnsOf reads what a reply of Pool says of the bids of c; none if it was too
// late.
func TurnsOf(c Call, reply []int64) (list []TurnOf) {
	at := 6
	for _, b := range c.Bids {
		if at >= len(reply) {
			return nil
		}
		list = append(list, TurnOf{reply[at], Tag(reply[at+1]), Tag(reply[at+2])})
		at += 3 + 2*len(b.Buckets) + len(b.Slots)
	}
	return list
}

// PoolTwin is Twin for turns: a random tape of calls for turns by replicas that
// crash, go idle, lose calls and replies, and remember what they were told
// before the server lost its state; with newcomers who may not overtake, and
// corrections of costs. A virtual server is one whose clock only Wait moves; it
// also gets gaps of hours. Both s and o must have Flush.
func PoolTwin(t *testing.T, s Raw, o Oracle, n int, virtual bool) {
	tape := &poolTape{rnd: Seeded(t), virtual: virtual, replicas: map[string]*poolReplica{}}
	// A tape that has missed some rare outcome goes on a while.
	for i := 0; i < n || i < 5*n && !tape.complete(); i++ {
		var wait time.Duration
		switch p := tape.rnd.IntN(1000); {
		case p < 5:
			restart(s, o)
		case p < 6 || (virtual && p < 20):
			wait = tape.gap()
		case p < 400:
			wait = time.Duration(tape.rnd.Int64N(4000)) * time.Microsecond
		}
		if wait > 0 {
			s.Wait(wait)
		}
		c := tape.next()
		got := s.Run(c)
		if !virtual && stood(tape.now, got[1], wait) {
			tape.now = got[1]
			restart(s, o) // both begin anew after the machine stood still
			continue
		}
		if want := o.At(got[1], c); !slices.Equal(got, want) {
			t.Fatalf("call %d: %+v\ngot  %s\nwant %s", i, c, show(c, got), show(c, want))
		}
		tape.learn(c, got)
	}
	if virtual && !tape.complete() { // on a real clock claims may always outlive what comes next
		t.Fatalf("the tape never reached some outcome: %v", tape.seen)
	}
}

// show makes the reply of c readable.
func show(c Call, reply []int64) string {
	if c.Op != Pool || len(reply) < 6 {
		return fmt.Sprint(reply)
	}
	return fmt.Sprintf("%v V %g to %g, bids %+v, all %v", reply[:4], Tag(reply[4]), Tag(reply[5]), TurnsOf(c, reply), reply[6:])
}

// poolTape draws calls.
type poolTape struct {
	rnd      *rand.Rand
	virtual  bool
	replicas map[string]*poolReplica
	crashes  int
	now      int64
	claimed  int64          // µs; no claim is kept after this
	seen     map[string]int // outcomes, to know that the tape is worth something
}

// poolReplica is what one replica remembers.
type poolReplica struct {
	seq   int64
	since map[string]float64
}

// gap is a pause that makes claims old; on a virtual server it may also be
// long enough for tags to be forgotten.
func (p *poolTape) gap() time.Duration {
	if p.virtual {
		return []time.Duration{time.Second, 2 * time.Second, 9 * time.Minute, time.Hour}[p.rnd.IntN(4)]
	}
	return 1200 * time.Millisecond
}

func (p *poolTape) replica() (string, *poolReplica) {
	slot := p.rnd.IntN(4)
	if p.rnd.IntN(200) == 0 {
		p.crashes++
	}
	name := fmt.Sprintf("a%d-%d", slot, (p.crashes+slot)/4)
	if p.replicas[name] == nil {
		p.replicas[name] = &poolReplica{since: map[string]float64{}}
	}
	return name, p.replicas[name]
}

// contended is the bucket of the pool: 2,000 tokens a second, 12 at once.
func contended() Bucket {
	return Bucket{Key: "pool", Limit: 2000 * token, Period: second, Burst: 12 * token}
}

// agents describes 12 slots, of which one comes free every 2 ms.
func agents() Bucket {
	return Bucket{Limit: 12 * token, Period: 24_000, Burst: 12 * token}
}

func (p *poolTape) next() Call {
	name, r := p.replica()
	r.seq += 20
	c := Call{Op: Pool, Inc: name, Seq: r.seq, TTL: 20, Buckets: []Bucket{contended()}}
	if p.rnd.IntN(20) == 0 && p.now > 0 {
		c.NotAfter = p.now + p.rnd.Int64N(4000) - 500
	}
	switch b := &c.Buckets[0]; p.rnd.IntN(8) {
	case 0:
		c.Op = Admit
		b.Amount = p.rnd.Int64N(3) * token
		// A real server may forget claims up to some ms late.
		b.InTurn = p.virtual || p.now < p.claimed-300_000 || p.now > p.claimed+5000
		c.Slots = []Slot{{Key: "t1", Cap: 3, Want: 1 + p.rnd.Int64N(2)}}
		for i := range p.rnd.Int64N(4) {
			d := Call{Op: Admit, Inc: name, Seq: r.seq + i + 1, NotAfter: c.NotAfter, Buckets: []Bucket{*b}, Slots: slices.Clone(c.Slots)}
			d.Buckets[0].Amount = p.rnd.Int64N(3) * token
			c.Also = append(c.Also, d)
		}
	case 1:
		c.Op = Settle
		b.Amount, b.MaxDebt = (p.rnd.Int64N(7)-3)*token, 100*token
		b.Tenant, b.Weight = p.tenant()
		c.Retry = p.rnd.IntN(6) == 0
		if p.rnd.IntN(2) == 0 {
			c.Slots = []Slot{{Key: "t1", Held: p.rnd.Int64N(2), Want: p.rnd.Int64N(3)}}
		}
		if p.rnd.IntN(3) == 0 { // beside one that belongs to no pool
			c.Buckets = append([]Bucket{{Key: "own", Limit: token, Period: second, Burst: 9 * token, Amount: -token, MaxDebt: 9 * token}}, c.Buckets...)
		}
	case 2:
		held := p.rnd.Int64N(4)
		c.Op, c.Buckets = Lease, nil
		c.Slots = []Slot{{Key: "pool", Held: held, Want: held + p.rnd.Int64N(4)}}
	default:
		if p.rnd.IntN(3) == 0 {
			c.Buckets, c.Slots = []Bucket{agents()}, []Slot{{Key: "pool", Held: p.rnd.Int64N(4)}}
			if p.rnd.IntN(10) == 0 {
				c.Seq -= 30 // overtaken
			}
		}
		c.Grace, c.Most = 50_000, 1+p.rnd.Int64N(8)
		c.Rest, c.More = p.rnd.Int64N(2)*10_000, p.rnd.Int64N(9)*token
		for i := range p.rnd.IntN(10) {
			c.Bids = append(c.Bids, p.bid(r, int64(i)))
		}
	}
	return c
}

// tenant draws one of six, whose weights change now and then.
func (p *poolTape) tenant() (string, float64) {
	i := p.rnd.IntN(6)
	weight := []float64{1, 1, 2, 0.5, 3, 0.1}[i]
	if p.rnd.IntN(50) == 0 {
		weight *= 1.7
	}
	return fmt.Sprintf("t%d", i), weight
}

func (p *poolTape) bid(r *poolReplica, i int64) Bid {
	tenant, weight := p.tenant()
	since, told := r.since[tenant]
	if !told || p.rnd.IntN(8) == 0 {
		since = -1
	}
	b := Bid{Tenant: tenant, Weight: weight, Since: since, Seq: r.seq + i, Cost: (1 + p.rnd.Int64N(3)) * token}
	if p.rnd.IntN(25) == 0 {
		b.Cost = 12 * token // the whole burst
	}
	if p.rnd.IntN(10) == 0 {
		b.Seq -= 30 // overtaken
	}
	if p.rnd.IntN(3) == 0 {
		b.Buckets = append(b.Buckets, Bucket{
			Key: "own-" + tenant, Limit: 200 * token, Period: second, Burst: 4 * token, Amount: p.rnd.Int64N(3) * token,
		})
	}
	if p.rnd.IntN(3) == 0 {
		b.Slots = append(b.Slots, Slot{Key: tenant, Cap: 3, Want: 1 + p.rnd.Int64N(3)})
	}
	return b
}

// learn remembers what a replica was told, unless the reply is lost.
func (p *poolTape) learn(c Call, reply []int64) {
	p.now = reply[1]
	if p.seen == nil {
		p.seen = map[string]int{}
	}
	switch {
	case c.Op == Admit && len(reply) == 6:
		p.seen[fmt.Sprintf("newcomer %d with claims %d", reply[0], reply[5])]++
	case c.Op == Pool && len(c.Slots) > 0:
		p.seen[fmt.Sprintf("slots %d", reply[0])]++
	case c.Op == Pool && len(reply) >= 6 && reply[2] >= 0:
		p.claimed = max(p.claimed, p.now+reply[2]+c.Grace+second)
		p.seen["claim"]++
	}
	lost := p.rnd.IntN(10) == 0
	for i, b := range TurnsOf(c, reply) {
		p.seen[fmt.Sprintf("bid %d", b.State)]++
		if len(c.Slots) > 0 {
			p.seen[fmt.Sprintf("bid for slots %d", b.State)]++
		}
		if !lost {
			p.replicas[c.Inc].since[c.Bids[i].Tenant] = b.Since
		}
	}
}

// complete reports whether every kind of outcome has occurred.
func (p *poolTape) complete() bool {
	for _, what := range []string{
		"slots 1", "slots 2", "bid for slots 0", "bid for slots 1", "bid for slots 2", "claim", "bid 0", "bid 1", "bid 2", "bid 3", "newcomer 0 with claims 1", "newcomer 1 with claims 0",
	} {
		if p.seen[what] == 0 {
			return false
		}
	}
	return true
}

// SameTurns is Same for turns: one random tape of Turns, give-backs and Admits
// that may not overtake, on two fleets that see the same clock.
func SameTurns(t *testing.T, want, got Fleet, settled func(), n int) {
	rnd := Seeded(t)
	type pair struct {
		want, got Store
		since     map[limiter.ID]float64
	}
	type run struct { // a request that holds slots
		want, got Store
		turns     limiter.Turns
		bid       limiter.Bid
	}
	var runs []run
	var pairs []pair
	for range 3 {
		pairs = append(pairs, pair{want.Replica(), got.Replica(), map[limiter.ID]float64{}})
	}
	pool := charge(limiter.Model, "m", limiter.Rate{Limit: 100, Per: time.Second, Burst: 9}, 1)
	for i := range n {
		p := pairs[rnd.IntN(len(pairs))]
		switch op := rnd.IntN(10); {
		case op < 5:
			c := limiter.Turns{Pool: pool.Bucket, Rate: pool.Rate, Most: 1 + rnd.IntN(4), Grace: 50 * time.Millisecond, Rest: 10 * time.Millisecond}
			if rnd.IntN(3) == 0 {
				c.Slots, c.Rate = slotOf("agent", 6).Slot, limiter.Rate{Limit: 6, Per: 100 * time.Millisecond, Burst: 6}
			}
			for range rnd.IntN(5) {
				c.Bids = append(c.Bids, drawBid(rnd, p.since))
			}
			vw, ew := p.want.Turns(context.Background(), c)
			vg, eg := p.got.Turns(context.Background(), c)
			if ew != nil || eg != nil || fmt.Sprint(vw) != fmt.Sprint(vg) {
				t.Fatalf("step %d: turns %+v\nwant %+v, %v\ngot  %+v, %v", i, c, vw, ew, vg, eg)
			}
			for j, b := range vw.Bids {
				p.since[c.Bids[j].Tenant] = b.Since
				if b.State == limiter.BidGranted && c.Slots.ID != "" && rnd.IntN(3) > 0 {
					runs = append(runs, run{p.want, p.got, c, c.Bids[j]})
					continue
				}
				if b.State == limiter.BidGranted && rnd.IntN(2) == 0 {
					finish(c, c.Bids[j], p.want, p.got, 1-rnd.Int64N(3))
				} else if b.State == limiter.BidGranted {
					finish(c, c.Bids[j], p.want, p.got, 0)
				}
			}
			settled()
		case op < 7:
			k := limiter.Take{Charges: []limiter.Charge{pool}}
			k.Charges[0].InTurn = rnd.IntN(3) > 0
			if vw, vg := admit(t, p.want, k), admit(t, p.got, k); !reflect.DeepEqual(vw, vg) {
				t.Fatalf("step %d: admit %+v\nwant %+v\ngot  %+v", i, k, vw, vg)
			}
		default:
			<-time.After(time.Duration(rnd.Int64N(int64(60 * time.Millisecond))))
			if len(runs) > 0 {
				j := rnd.IntN(len(runs))
				finish(runs[j].turns, runs[j].bid, runs[j].want, runs[j].got, 0)
				runs = slices.Delete(runs, j, j+1)
				settled()
			}
		}
	}
	for _, p := range pairs {
		if err := p.got.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// drawBid is a bid of one of four tenants, who may have limits of their own.
func drawBid(rnd *rand.Rand, since map[limiter.ID]float64) limiter.Bid {
	i := rnd.IntN(4)
	b := limiter.Bid{Tenant: limiter.Hash(limiter.User, fmt.Sprint(i)), Weight: float64(1 + i%2), Cost: 1 + rnd.Int64N(3), Since: limiter.Unknown}
	if v, told := since[b.Tenant]; told {
		b.Since = v
	}
	if i > 1 {
		b.Rest.Slots = []limiter.Slot{slotOf(fmt.Sprint(i), 2)}
	}
	if i > 2 {
		r := limiter.Rate{Limit: 20, Per: time.Second, Burst: 3}
		b.Rest.Charges = []limiter.Charge{charge(limiter.User, fmt.Sprint(i), r, 1)}
	}
	return b
}

// finish ends a granted bid on both stores, its cost corrected by delta.
func finish(c limiter.Turns, b limiter.Bid, want, got limiter.Store, delta int64) {
	var f limiter.Settlement
	if c.Slots.ID != "" {
		f.Free = slices.Repeat([]limiter.SlotID{c.Slots}, int(b.Cost))
	} else {
		f.Adjust = []limiter.Adjustment{
			{Bucket: c.Pool, Rate: c.Rate, Delta: delta, Tenant: b.Tenant, Weight: b.Weight},
		}
	}
	for _, sl := range b.Rest.Slots {
		f.Free = append(f.Free, sl.Slot)
	}
	want.Settle(f)
	got.Settle(f)
}
