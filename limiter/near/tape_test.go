package near_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/near"
)

var seedFlag = flag.Uint64("near.seed", 0, "repeat the random tape with this seed")

// The slack of a refusal that the store would not have given, as documented.
const (
	held    = 15 * time.Millisecond   // after a refusal of the store here
	blindly = 1100 * time.Millisecond // after something came back elsewhere
	// glimpse is the age of what is known of buckets that are not empty, and so
	// how much of what others take may be missing from a wait.
	glimpse = 200 * time.Millisecond
)

// witness is the store of one replica, as the judge sees it.
type witness struct {
	limiter.Store
	tape    *tape
	refused time.Time // when it last refused
}

func (w *witness) Admit(ctx context.Context, k limiter.Take) (limiter.Verdict, error) {
	w.tape.asked = true
	v, err := w.Store.Admit(ctx, k)
	if err == nil && !v.OK {
		w.refused = time.Now()
	}
	return v, err
}

func (w *witness) Settle(f limiter.Settlement) {
	for _, a := range f.Adjust {
		if a.Delta > 0 {
			w.tape.mu.Lock()
			w.tape.back[a.Bucket] = time.Now()
			w.tape.mu.Unlock()
		}
	}
	w.Store.Settle(f)
}

// tape is a random sequence of what replicas do, one thing at a time, and its
// judge.
type tape struct {
	t       *testing.T
	rnd     *rand.Rand
	memory  *memstore.Memory
	look    *memstore.Store // for the judge
	near    []*near.Store
	witness []*witness
	inner   []*memstore.Store
	rates   map[limiter.BucketID]limiter.Rate
	spent   map[limiter.BucketID]int64 // granted less given back
	taken   map[limiter.BucketID]time.Time
	grants  []limiter.Take
	born    time.Time
	asked   bool
	down    bool
	options near.Options
	seen    map[string]int

	mu   sync.Mutex
	back map[limiter.BucketID]time.Time // when something last came back
}

func (p *tape) lastBack(b limiter.BucketID) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.back[b]
}

func newTape(t *testing.T, rnd *rand.Rand) *tape {
	m := memstore.New()
	p := &tape{
		t: t, rnd: rnd, memory: m, look: m.Replica(memstore.Options{}), rates: map[limiter.BucketID]limiter.Rate{},
		spent: map[limiter.BucketID]int64{}, back: map[limiter.BucketID]time.Time{}, taken: map[limiter.BucketID]time.Time{}, born: time.Now(), seen: map[string]int{},
		options: near.Options{DenyCache: rnd.IntN(4) > 0, Prefetch: rnd.IntN(4) > 0, MaxBuckets: 64 << rnd.IntN(4)},
	}
	for range 1 + rnd.IntN(3) {
		p.join()
	}
	return p
}

func (p *tape) join() {
	s := p.memory.Replica(memstore.Options{})
	w := &witness{Store: s, tape: p}
	n, err := near.New(w, func() int { return 3 }, p.options)
	if err != nil {
		p.t.Fatal(err)
	}
	p.inner, p.witness, p.near = append(p.inner, s), append(p.witness, w), append(p.near, n)
}

// charge draws a charge on one of a few buckets, each with a rate of its own.
func (p *tape) charge() limiter.Charge {
	d := []limiter.Dimension{limiter.APIKey, limiter.User, limiter.Model}[p.rnd.IntN(3)]
	c := key(fmt.Sprint(p.rnd.IntN(2)), limiter.Rate{}, 1)
	c.Bucket.Dimension, c.Bucket.Class = d, limiter.Class(p.rnd.IntN(2))
	r, ok := p.rates[c.Bucket]
	if !ok {
		r = perSecond([]int64{1, 20, 200, 2000}[p.rnd.IntN(4)], []int64{1, 10, 100, 1000}[p.rnd.IntN(4)])
		p.rates[c.Bucket] = r
	}
	c.Rate = r
	if c.Bucket.Class == limiter.Tokens {
		c.Cost = p.rnd.Int64N(min(r.Burst, 50) + 1)
	}
	return c
}

func (p *tape) take() limiter.Take {
	k := limiter.Take{Waited: p.rnd.IntN(4) == 0}
	used := map[limiter.BucketID]bool{}
	for range 1 + p.rnd.IntN(3) {
		if c := p.charge(); !used[c.Bucket] {
			used[c.Bucket] = true
			k.Charges = append(k.Charges, c)
		}
	}
	if p.rnd.IntN(10) == 0 {
		k.Slots = []limiter.Slot{{Slot: limiter.SlotID{Dimension: limiter.User, ID: "u"}, Cap: 3}}
	}
	return k
}

// pause lets a random time pass, in whole µs as the store counts.
func (p *tape) pause(mean time.Duration) {
	time.Sleep(time.Duration(p.rnd.ExpFloat64() * float64(mean)).Truncate(time.Microsecond))
}

// step does one thing.
func (p *tape) step() {
	i := p.rnd.IntN(len(p.near))
	switch op := p.rnd.IntN(100); {
	case op < 70:
		k := p.take()
		for range 1 + p.rnd.IntN(20) {
			p.admit(i, k)
			if p.rnd.IntN(3) == 0 {
				p.pause(time.Millisecond)
			}
		}
	case op < 80 && len(p.grants) > 0:
		p.settle(i)
	case op < 82:
		p.turns(i)
	case op < 83:
		p.down = !p.down
		p.memory.SetDown(p.down)
	case op < 84:
		p.leave(i)
	case op < 97:
		p.pause(20 * time.Millisecond)
	default:
		p.pause(400 * time.Millisecond)
	}
}

// admit asks at replica i and judges the answer.
func (p *tape) admit(i int, k limiter.Take) limiter.Verdict {
	p.asked = false
	want, werr := p.look.Peek(context.Background(), k)
	v, err := p.near[i].Admit(context.Background(), k)
	switch {
	case errors.Is(err, limiter.ErrUnavailable):
		if !p.down {
			p.t.Fatalf("%+v: %v, though the store is up", k, err)
		}
		p.seen["unavailable"]++
	case err != nil:
		p.t.Fatal(err)
	case v.OK:
		p.grants = append(p.grants, k)
		for _, c := range k.Charges {
			p.spent[c.Bucket] += c.Cost
			p.taken[c.Bucket] = time.Now()
		}
		p.see("granted")
	default:
		p.see("denied")
		if werr == nil && want.OK && !p.asked {
			p.excuse(i, k, v)
		}
	}
	for b, r := range p.rates {
		allowed := float64(r.Burst) + float64(r.Limit)*time.Since(p.born).Seconds()
		if float64(p.spent[b]) > allowed+1e-6 {
			p.t.Fatalf("P1: %d spent of %v %v, %.2f allowed", p.spent[b], b, r, allowed)
		}
	}
	return v
}

func (p *tape) see(what string) {
	if !p.asked {
		what += " here"
	}
	p.seen[what]++
}

// excuse looks for the documented reason of a refusal that the store would not
// have given.
func (p *tape) excuse(i int, k limiter.Take, v limiter.Verdict) {
	for j, c := range k.Charges {
		if v.Charges[j].Wait > 0 && time.Since(p.lastBack(c.Bucket)) <= blindly {
			p.seen["excused: given back elsewhere"]++
			return
		}
	}
	if !k.Waited && time.Since(p.witness[i].refused) <= held {
		p.seen["excused: held"]++
		return
	}
	p.t.Fatalf("replica %d refused %+v: %+v, for no documented reason", i, k, v)
}

// settle ends a grant, or gives part of it back.
func (p *tape) settle(i int) {
	at := p.rnd.IntN(len(p.grants))
	k := p.grants[at]
	p.grants = append(p.grants[:at], p.grants[at+1:]...)
	var f limiter.Settlement
	for _, c := range k.Charges {
		delta := c.Cost - p.rnd.Int64N(2*c.Cost+1)
		if delta > 0 || delta < 0 && c.Bucket.Class == limiter.Tokens {
			f.Adjust = append(f.Adjust, limiter.Adjustment{Bucket: c.Bucket, Rate: c.Rate, Delta: delta})
			p.spent[c.Bucket] -= max(0, delta)
			if delta < 0 {
				p.taken[c.Bucket] = time.Now()
			}
		}
	}
	for _, s := range k.Slots {
		f.Free = append(f.Free, s.Slot)
	}
	p.near[i].Settle(f)
}

// turns lets one waiter bid for a turn, which ends or withdraws at once.
func (p *tape) turns(i int) {
	c := p.charge()
	if c.Cost == 0 {
		return
	}
	t := limiter.Turns{Pool: c.Bucket, Rate: c.Rate, Most: 1, Grace: 5 * time.Millisecond, Bids: []limiter.Bid{{Tenant: "t", Weight: 1, Cost: c.Cost, Since: limiter.Unknown}}}
	v, err := p.near[i].Turns(context.Background(), t)
	if err != nil {
		return
	}
	if v.Bids[0].State == limiter.BidGranted {
		p.spent[c.Bucket] += c.Cost
		p.taken[c.Bucket] = time.Now()
	}
	t.Bids = nil
	p.near[i].Turns(context.Background(), t)
}

// leave ends replica i, in order or by a crash, and starts another.
func (p *tape) leave(i int) {
	if p.rnd.IntN(2) == 0 {
		p.inner[i].Crash()
	}
	p.near[i].Close(context.Background())
	p.near = append(p.near[:i], p.near[i+1:]...)
	p.inner = append(p.inner[:i], p.inner[i+1:]...)
	p.witness = append(p.witness[:i], p.witness[i+1:]...)
	p.join()
}

// alone checks a told wait: nothing happens anywhere until it is over.
func (p *tape) alone() {
	if p.down {
		p.down = false
		p.memory.SetDown(false)
	}
	i, k := p.rnd.IntN(len(p.near)), p.take()
	k.Slots = nil
	v := p.admit(i, k)
	told := time.Now()
	wait, here := time.Duration(0), !p.asked
	for j := range v.Charges {
		wait = max(wait, v.Charges[j].Wait)
	}
	if v.OK || wait > time.Minute {
		return
	}
	time.Sleep(wait)
	back := p.rnd.IntN(len(p.near))
	again := p.admit(back, k)
	if again.OK {
		p.seen["alone"]++
		return
	}
	// Elsewhere memory may be of before a give-back, and here of before others
	// took something, or charged it afterwards.
	for _, c := range k.Charges {
		came, went := told.Sub(p.lastBack(c.Bucket)) <= blindly, told.Sub(p.taken[c.Bucket])
		if back != i && time.Since(p.lastBack(c.Bucket)) <= blindly || here && (went <= glimpse || came && went <= blindly) {
			p.seen["excused: wait"]++
			return
		}
	}
	p.t.Fatalf("%+v: told %v by replica %d (from memory: %v), slept it alone, then replica %d said %+v", k, wait, i, here, back, again)
}

func playTape(t *testing.T, seed uint64, steps int) (seen map[string]int) {
	synctest.Test(t, func(t *testing.T) {
		p := newTape(t, rand.New(rand.NewPCG(seed, 1)))
		defer func() {
			for _, s := range p.near {
				s.Close(context.Background())
			}
			if t.Failed() {
				t.Logf("repeat with -near.seed=%d", seed)
			}
		}()
		for i := range steps {
			p.step()
			if i%10 == 0 {
				p.alone()
			}
		}
		seen = p.seen
	})
	return seen
}

// TestTape plays random tapes against the oracle: what is spent never exceeds
// burst + rate × time, no refusal is without a documented reason, and told waits
// are kept.
func TestTape(t *testing.T) {
	first, n := *seedFlag, uint64(1)
	if first == 0 {
		first, n = rand.Uint64(), 40
	}
	all := map[string]int{}
	for i := range n {
		for what, times := range playTape(t, first+i, 300) {
			all[what] += times
		}
	}
	t.Log(all)
	for _, what := range []string{"granted", "granted here", "denied", "denied here", "unavailable", "excused: held", "alone"} {
		if n > 1 && all[what] == 0 {
			t.Errorf("the tapes never came to %q", what)
		}
	}
}

// FuzzTape lets the fuzzer look for a seed that breaks the oracle.
func FuzzTape(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { playTape(t, seed, 100) })
}
