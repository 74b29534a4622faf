package fairq

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// bidder is the naive twin of a tenant of Tagged.
type bidder struct {
	name          string
	weight        float64
	items         []*TagItem[int]
	seq           int
	finish, since float64
	until         time.Time
}

func (b *bidder) start() float64 { return max(b.finish, b.since) }

// tagPair runs one tape on a Tagged and on a list.
type tagPair struct {
	q      *Tagged[int]
	list   []*bidder
	now    time.Time
	hold   time.Time
	v      float64
	seq    int
	items  []*TagItem[int]
	queued map[*TagItem[int]]*bidder
	names  map[*TagItem[int]]string
	weight map[*TagItem[int]]float64
	order  map[*TagItem[int]]int
}

func newTagPair() *tagPair {
	return &tagPair{
		q: NewTagged[int](), now: epoch, queued: map[*TagItem[int]]*bidder{},
		names: map[*TagItem[int]]string{}, weight: map[*TagItem[int]]float64{}, order: map[*TagItem[int]]int{},
	}
}

func (p *tagPair) find(name string) *bidder {
	for _, b := range p.list {
		if b.name == name {
			return b
		}
	}
	return nil
}

func (p *tagPair) insert(it *TagItem[int]) {
	b := p.find(p.names[it])
	if b == nil {
		b = &bidder{name: p.names[it], since: Unknown, seq: p.order[it]}
		p.list = append(p.list, b)
	}
	b.weight = p.weight[it]
	b.items = append(b.items, it)
	slices.SortFunc(b.items, func(x, y *TagItem[int]) int { return p.order[x] - p.order[y] })
	p.queued[it] = b
}

func (p *tagPair) remove(it *TagItem[int]) bool {
	b := p.queued[it]
	if b == nil {
		return false
	}
	delete(p.queued, it)
	b.items = slices.DeleteFunc(b.items, func(o *TagItem[int]) bool { return o == it })
	if len(b.items) == 0 {
		p.list = slices.DeleteFunc(p.list, func(o *bidder) bool { return o == b })
	}
	return true
}

func (p *tagPair) tag(b *bidder, k int) float64 {
	s := b.start()
	if b.since == Unknown {
		s = p.v
	}
	return s + float64(k)/b.weight
}

// best sorts every place that might be bid for.
func (p *tagPair) best(n int) []*TagItem[int] {
	var fresh, known []*bidder
	for _, b := range p.list {
		switch {
		case b.until.After(p.now):
		case b.since == Unknown:
			fresh = append(fresh, b)
		default:
			known = append(known, b)
		}
	}
	if p.now.Before(p.hold) || len(fresh)+len(known) == 0 {
		return nil
	}
	most := int(math.Ceil(float64(n)/float64(len(fresh)+len(known)))) + 1
	slices.SortFunc(fresh, func(a, b *bidder) int { return a.seq - b.seq })
	slices.SortFunc(known, func(a, b *bidder) int { return cmp.Or(cmp.Compare(a.start(), b.start()), a.seq-b.seq) })
	if len(known) > 0 && n > 1 {
		fresh = fresh[:min(n-1, len(fresh))]
	}
	chosen := append(fresh, known...)
	type bid struct {
		b *bidder
		k int
	}
	var bids []bid
	for _, b := range chosen[:min(n, len(chosen))] {
		for k := range min(most, len(b.items)) {
			bids = append(bids, bid{b, k})
		}
	}
	slices.SortStableFunc(bids, func(x, y bid) int {
		a, b := x.b.since == Unknown && x.k == 0, y.b.since == Unknown && y.k == 0
		if a != b {
			if a {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(p.tag(x.b, x.k), p.tag(y.b, y.k)), x.b.seq-y.b.seq, x.k-y.k)
	})
	var all []*TagItem[int]
	for _, x := range bids[:min(n, len(bids))] {
		all = append(all, x.b.items[x.k])
	}
	return all
}

func (p *tagPair) ahead(it *TagItem[int]) int {
	own := p.queued[it]
	if own == nil {
		return 0
	}
	n := slices.Index(own.items, it)
	mine := p.tag(own, n)
	for _, b := range p.list {
		for k := range b.items {
			if tag := p.tag(b, k); b != own && (tag < mine-1e-9 || tag < mine+1e-9 && b.seq < own.seq) {
				n++
			}
		}
	}
	return n
}

var tagWeights = [...]float64{1, 2, .5, 4}

func (p *tagPair) step(op byte) error {
	arg := int(op >> 3)
	var it *TagItem[int]
	if len(p.items) > 0 {
		it = p.items[(arg*7)%len(p.items)]
	}
	switch {
	case op&7 < 2:
		it = &TagItem[int]{Value: len(p.items)}
		p.seq++
		p.items, p.order[it] = append(p.items, it), p.seq
		p.names[it], p.weight[it] = fmt.Sprint("t", arg%8), tagWeights[arg%4]
		p.q.Push(it, p.names[it], p.weight[it], 1)
		p.insert(it)
	case op&7 == 2: // a call: some are granted, all are told their tags
		p.call(1+arg%9, arg)
	case op&7 == 3 && it != nil:
		if got, want := p.q.Remove(it, false), p.remove(it); got != want {
			return fmt.Errorf("remove of %d: %v, want %v", it.Value, got, want)
		}
	case op&7 == 4 && it != nil && p.queued[it] == nil:
		p.q.Return(it, p.names[it])
		p.insert(it)
	case op&7 == 5 && it != nil:
		until := p.now.Add(time.Duration(arg%4) * time.Second)
		p.q.Rest(p.now, it, until)
		if b := p.queued[it]; b != nil && until.After(p.now) && until.After(b.until) {
			b.until = until
		}
	case op&7 == 6:
		p.now = p.now.Add(time.Duration(arg%4) * time.Second)
	case op&7 == 7:
		p.hold = p.now.Add(time.Duration(arg%4-1) * time.Second)
		p.q.Hold(p.hold)
	}
	return p.check()
}

// call grants the first bid now and then, and tells the tags.
func (p *tagPair) call(n, arg int) {
	for i, it := range p.q.Best(p.now, n, nil) {
		b := p.queued[it]
		finish, since := b.finish, b.since
		if since == Unknown {
			since = p.v
		}
		if i == 0 && arg%2 == 0 {
			p.v = max(p.v, finish, since)
			finish = max(finish, since) + 1/b.weight
			p.q.Remove(it, true)
			p.remove(it)
		}
		p.v = max(p.v, since)
		p.q.Learn(b.name, finish, since)
		b.finish, b.since = finish, since
	}
	p.v = max(p.v, p.q.now)
	p.q.now = p.v // as if told
}

func (p *tagPair) check() error {
	if p.q.Len() != len(p.queued) || p.q.Tenants() != len(p.list) {
		return fmt.Errorf("%d items of %d tenants, want %d of %d", p.q.Len(), p.q.Tenants(), len(p.queued), len(p.list))
	}
	for n := 1; n < 10; n += 4 {
		got, want := p.q.Best(p.now, n, nil), p.best(n)
		if !slices.Equal(got, want) {
			return fmt.Errorf("best %d: %v, want %v", n, values(got), values(want))
		}
	}
	waiting := 0
	for _, b := range p.list {
		if !b.until.After(p.now) {
			waiting += len(b.items)
		}
	}
	if got := p.q.Waiting(); got != float64(waiting) {
		return fmt.Errorf("cost %v of those that do not rest, want %d", got, waiting)
	}
	for _, it := range p.items[max(0, len(p.items)-30):] {
		if got, want := p.q.Ahead(it), p.ahead(it); got != want {
			return fmt.Errorf("ahead of %d: %d, want %d", it.Value, got, want)
		}
	}
	at, ok := p.q.Ready(p.now)
	if ok != (len(p.queued) > 0) {
		return fmt.Errorf("ready: %v", ok)
	}
	want := time.Time{}
	for _, b := range p.list {
		from := p.now
		if b.until.After(from) {
			from = b.until
		}
		if want.IsZero() || from.Before(want) {
			want = from
		}
	}
	if ok && p.hold.After(want) {
		want = p.hold
	}
	if ok && !at.Equal(want) {
		return fmt.Errorf("ready at +%v, want +%v", at.Sub(epoch), want.Sub(epoch))
	}
	for _, h := range []*tagHeap[int]{&p.q.fresh, &p.q.known, &p.q.resting} {
		for i, t := range h.all {
			if t.index != i || t.in != h || i > 0 && h.before(t, h.all[(i-1)/2]) {
				return fmt.Errorf("heap is broken at %s", t.name)
			}
		}
	}
	return nil
}

func values(items []*TagItem[int]) (v []int) {
	for _, it := range items {
		v = append(v, it.Value)
	}
	return v
}

func runTagTape(tape []byte) error {
	p := newTagPair()
	for i, op := range tape {
		if err := p.step(op); err != nil {
			return fmt.Errorf("step %d (%d): %w", i, op, err)
		}
	}
	return nil
}

func TestTaggedTwinOnRandomTapes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 13))
	for range 200 {
		tape := make([]byte, 250)
		for i := range tape {
			tape[i] = byte(rng.IntN(256))
		}
		if err := runTagTape(tape); err != nil {
			t.Fatalf("tape %v: %v", tape, err)
		}
	}
}

func FuzzTagged(f *testing.F) {
	f.Add([]byte{0, 8, 16, 0, 2, 2, 4, 10, 13, 46, 2})
	f.Fuzz(func(t *testing.T, tape []byte) {
		if err := runTagTape(tape[:min(len(tape), 400)]); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTaggedStarvesNobody: while newcomers outnumber the places of every call, a
// known tenant is bid for in each.
func TestTaggedStarvesNobody(t *testing.T) {
	q, old := NewTagged[int](), &TagItem[int]{Value: -1}
	q.Push(old, "old", 1, 1)
	q.Learn("old", 1000, 1000)
	for call := range 50 {
		for i := range 20 {
			q.Push(&TagItem[int]{Value: call}, fmt.Sprint(call, " ", i), 1, 1)
		}
		if bids := q.Best(epoch, 9, nil); len(bids) != 9 || !slices.Contains(bids, old) {
			t.Fatalf("call %d bids for %v", call, values(bids))
		}
	}
}

// TestTaggedTags walks through what Tags, Since and Share say of one tenant.
func TestTaggedTags(t *testing.T) {
	q := NewTagged[int]()
	a, b := &TagItem[int]{}, &TagItem[int]{}
	q.Push(a, "t", 2, 6)
	q.Push(b, "t", 2, 6)
	if _, _, known := q.Tags(b); known || q.Since(b) != Unknown || q.Share(b) != 1 {
		t.Error("something is known of a tenant that was never bid for")
	}
	q.Learn("t", 10, 12)
	if s, before, known := q.Tags(b); s != 12 || before != 3 || !known || q.Since(b) != 12 {
		t.Errorf("start %v, before %v, since %v; want 12, 3, 12", s, before, q.Since(b))
	}
	// One of cost 6 is served here, three elsewhere: with the one to come, 2 of 5.
	q.Remove(a, true)
	q.Learn("t", 10+4*3, 12)
	if got := q.Share(b); got != 2./5 {
		t.Errorf("share %v, want 2/5", got)
	}
	q.Learn("t", 1e6, 12)
	if got := q.Share(b); got != leastShare {
		t.Errorf("share %v, want the least", got)
	}
	q.Remove(b, false)
	if _, _, known := q.Tags(b); known || q.Since(b) != Unknown || q.Share(b) != 1 || q.Ahead(b) != 0 || q.Remove(b, false) {
		t.Error("something is known of an item that is not queued")
	}
}

// TestTaggedAheadOfACrowd: of many tenants few are looked at.
func TestTaggedAheadOfACrowd(t *testing.T) {
	q := NewTagged[int]()
	for i := range 30_000 {
		q.Push(&TagItem[int]{}, fmt.Sprint("t", i%10_000), 1, 1)
	}
	it := &TagItem[int]{}
	q.Push(&TagItem[int]{}, "new", 1, 1)
	q.Push(it, "new", 1, 1)
	if got := q.Ahead(it); math.Abs(float64(got-20_001)) > 2000 {
		t.Errorf("%d ahead, want about 20,001", got)
	}
}

func TestTaggedMemory(t *testing.T) {
	q := NewTagged[int]()
	items := make([]TagItem[int], 5000)
	for i := range items {
		q.Push(&items[i], fmt.Sprint("t", i), 1, 1)
	}
	for i := range items {
		q.Remove(&items[i], i%2 == 0)
	}
	if len(q.tenants) != 0 || len(q.free) != maxFree || len(q.fresh.all) != 0 {
		t.Errorf("%d tenants, %d free, %d in the order", len(q.tenants), len(q.free), len(q.fresh.all))
	}
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("t", i)
		q.Push(&items[i], names[i], 1, 1)
	}
	var bids []*TagItem[int]
	v := 0.
	turn := func() {
		bids = q.Best(epoch, 9, bids)
		v++
		for i, it := range bids {
			name := it.owner.name
			q.Learn(name, v, v)
			if i == 0 {
				q.Remove(it, true)
				q.Push(it, name, 1, 1)
				q.Ahead(it)
			}
		}
	}
	for range 200 {
		turn()
	}
	if n := testing.AllocsPerRun(500, turn); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}

func TestTaggedMisuse(t *testing.T) {
	q := NewTagged[int]()
	for name, f := range map[string]func(){
		"weight 0": func() { q.Push(&TagItem[int]{}, "t", 0, 1) },
		"cost NaN": func() { q.Push(&TagItem[int]{}, "t", 1, math.NaN()) },
		"queued already": func() {
			it := &TagItem[int]{}
			q.Push(it, "t", 1, 1)
			q.Push(it, "t", 1, 1)
		},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, name) {
					t.Errorf("panic %q, want one about %q", got, name)
				}
			}()
			f()
		}()
	}
}

// TestTaggedStory is one tenant with much and one with little, as people see it.
func TestTaggedStory(t *testing.T) {
	q, b := NewTagged[string](), &bytes.Buffer{}
	items := map[string]*TagItem[string]{}
	push := func(tenant string, n int) {
		for i := range n {
			it := &TagItem[string]{Value: fmt.Sprint(tenant, i+1)}
			items[it.Value] = it
			q.Push(it, tenant, 1, 1)
		}
	}
	bids := func() {
		for _, it := range q.Best(epoch, 4, nil) {
			fmt.Fprint(b, it.Value, " ")
		}
		fmt.Fprintln(b)
	}
	push("big", 5)
	bids()
	q.Learn("big", 7, 3)
	push("small", 2)
	bids()
	q.Learn("small", 0, 6)
	bids()
	q.Remove(items["small1"], true)
	q.Learn("small", 7, 6)
	q.Rest(epoch, items["big1"], at(2))
	bids()
	fmt.Fprintln(b, "ahead of big2:", q.Ahead(items["big2"]))
	fmt.Fprintf(b, "%+v\n", q.Loads(1))
	push("new", 1)
	q.Dump(b)
	want := `big1 big2 big3 big4 
small1 small2 big1 big2 
small1 big1 small2 big2 
small2 
ahead of big2: 2
[{Tenant:big Queued:5 Weight:1 Served:0}]
queued=7 tenants=3 resting=1 now=6.000
  new weight=1 queued=1 served=0 fresh
  small weight=1 queued=1 served=1 start=7.000
  big weight=1 queued=5 served=0 start=7.000 rests=00:00:02.000
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// BenchmarkTagged measures one call's worth of bids.
func BenchmarkTagged(b *testing.B) {
	for _, tenants := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			q, items := NewTagged[int](), make([]TagItem[int], tenants)
			for i := range items {
				q.Push(&items[i], fmt.Sprintf("%032x", i), 1, 1)
				q.Learn(items[i].owner.name, float64(i), float64(i))
			}
			var bids []*TagItem[int]
			v := float64(tenants)
			b.ReportAllocs()
			for b.Loop() {
				bids = q.Best(epoch, 9, bids)
				it := bids[0]
				name := it.owner.name
				q.Remove(it, true)
				q.Push(it, name, 1, 1)
				v++
				q.Learn(name, v, v)
			}
		})
	}
}
