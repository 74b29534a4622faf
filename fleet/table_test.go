package fleet

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ms is an instant in milliseconds, the resolution of ages on the wire.
func ms(n int) time.Time { return epoch.Add(time.Duration(n) * time.Millisecond) }

// hearing is one arrival of a digest at a table.
type hearing struct {
	d     Digest
	heard time.Time
}

// hearsay makes arrivals of many versions of a few replicas. The content follows
// from the version, as it does in a fleet.
func hearsay(rng *rand.Rand, n int) []hearing {
	var all []hearing
	for range n {
		d := Digest{
			Replica:     fmt.Sprint("r", rng.IntN(4)),
			Incarnation: []uint64{3, 1 << 60, 7}[rng.IntN(3)],
			Sequence:    1 + rng.Uint64N(5),
		}
		d.Build = fmt.Sprint(d.Incarnation)
		d.InFlight = int64(d.Sequence)
		d.Pools = []Pool{{Name: "p", Depth: int(d.Sequence), Spacing: time.Duration(d.Sequence)}}
		all = append(all, hearing{d, ms(rng.IntN(1000))})
	}
	return all
}

func tableOf(self string, all []hearing) *Table {
	t := NewTable(self)
	for _, h := range all {
		t.Merge(h.d, h.heard)
	}
	return t
}

// TestMergeLaws: order, repetition and grouping do not matter (G1).
func TestMergeLaws(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		all := hearsay(rng, 1+rng.IntN(30))
		want := tableOf("self", all)
		shuffled := append(slices.Clone(all), all[:rng.IntN(len(all))]...)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if got := tableOf("self", shuffled); !reflect.DeepEqual(got.others, want.others) {
			t.Fatalf("shuffled and repeated:\n%v\nwant\n%v", got.others, want.others)
		}
		cut := rng.IntN(len(all) + 1)
		left, right := tableOf("self", all[:cut]), tableOf("other", all[cut:])
		for _, e := range right.others {
			left.Merge(e.digest, e.heard)
		}
		if !reflect.DeepEqual(left.others, want.others) {
			t.Fatalf("merged in two groups:\n%v\nwant\n%v", left.others, want.others)
		}
	}
}

// TestPushPullHeals: whatever was lost or reordered, one exchange of whole tables
// makes two replicas equal to one that heard everything (G1).
func TestPushPullHeals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		all := hearsay(rng, 1+rng.IntN(30))
		pick := func() []hearing {
			some := slices.DeleteFunc(slices.Clone(all), func(hearing) bool { return rng.IntN(2) == 0 })
			rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			return some
		}
		heardA, heardB := pick(), pick()
		a, b, want := tableOf("a", heardA), tableOf("b", heardB), tableOf("c", append(heardA, heardB...))
		now := ms(1000)
		fromA, fromB := a.Encode(now), b.Encode(now)
		if _, err := a.MergeEncoded(fromB, now); err != nil {
			t.Fatal(err)
		}
		if _, err := b.MergeEncoded(fromA, now); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a.others, want.others) || !reflect.DeepEqual(b.others, want.others) {
			t.Fatalf("after push/pull\n%v\n%v\nwant\n%v", a.others, b.others, want.others)
		}
		if news, _ := b.MergeEncoded(fromA, now); news != 0 {
			t.Fatalf("%d digests were news the second time", news)
		}
	}
}

// TestMergeNews is a table of what counts as news, step by step.
func TestMergeNews(t *testing.T) {
	tests := []struct {
		incarnation, sequence uint64
		news                  bool
		known                 [2]uint64 // afterwards
	}{
		{5, 1, true, [2]uint64{5, 1}},
		{5, 1, false, [2]uint64{5, 1}},
		{5, 3, true, [2]uint64{5, 3}},
		{5, 2, false, [2]uint64{5, 3}},
		{4, 9, false, [2]uint64{5, 3}},
		{6, 1, true, [2]uint64{6, 1}},
		{5, 4, false, [2]uint64{6, 1}},
	}
	table := NewTable("self")
	for i, tt := range tests {
		news := table.Merge(Digest{Replica: "r", Incarnation: tt.incarnation, Sequence: tt.sequence}, epoch)
		d := table.others["r"].digest
		if known := [2]uint64{d.Incarnation, d.Sequence}; news != tt.news || known != tt.known {
			t.Errorf("step %d: (%d,%d): news %v, known %v; want %v, %v", i, tt.incarnation, tt.sequence, news, known, tt.news, tt.known)
		}
	}
}

// TestRelayedCopyIsNotFresh: a copy that wandered keeps the age it had.
func TestRelayedCopyIsNotFresh(t *testing.T) {
	d := Digest{Replica: "r", Incarnation: 1, Sequence: 1}
	relay, table := NewTable("relay"), NewTable("self")
	relay.Merge(d, ms(0))
	if news, err := table.MergeEncoded(relay.Encode(ms(900)), ms(5000)); news != 1 || err != nil {
		t.Fatalf("news %d, %v", news, err)
	}
	if v := table.View(ms(5000)); v.Fresh || v.Age != 900*time.Millisecond {
		t.Errorf("fresh %v at age %v", v.Fresh, v.Age)
	}
	table.Merge(d, ms(5000)) // the same version straight from a slow packet
	if v := table.View(ms(5000)); v.Age != 900*time.Millisecond {
		t.Errorf("age %v after a copy", v.Age)
	}
	if news, _ := table.MergeEncoded(relay.Encode(ms(6000)), ms(6000)); news != 0 {
		t.Error("a digest beyond retention was taken")
	}
}

// TestAnnounce: sequences grow, and a remembered former life is outranked.
func TestAnnounce(t *testing.T) {
	table := NewTable("self")
	first := table.Announce(Digest{Incarnation: 10, Build: "b"})
	if first.Replica != "self" || first.Incarnation != 10 || first.Sequence != 1 || first.Build != "b" {
		t.Fatalf("first %+v", first)
	}
	other := NewTable("other")
	other.Merge(Digest{Replica: "self", Incarnation: 99, Sequence: 500}, epoch)
	if other.Merge(first, epoch) {
		t.Error("the lower incarnation was believed")
	}
	if _, err := table.MergeEncoded(other.Encode(epoch), epoch); err != nil {
		t.Fatal(err)
	}
	second := table.Announce(Digest{Incarnation: 10})
	if second.Incarnation != 100 || second.Sequence != 2 {
		t.Errorf("second %+v, want incarnation 100", second)
	}
	if !other.Merge(second, epoch) {
		t.Error("the outranking digest was not news")
	}
	if third := table.Announce(Digest{Incarnation: 10}); third.Incarnation != 100 || third.Sequence != 3 {
		t.Errorf("third %+v: an incarnation must not fall back", third)
	}
	if len(table.View(epoch).Replicas) != 0 {
		t.Error("a replica is among its own others")
	}
}

func TestExpireAndForget(t *testing.T) {
	table := NewTable("self")
	table.Merge(Digest{Replica: "old"}, ms(0))
	table.Merge(Digest{Replica: "new"}, ms(3000))
	table.Expire(ms(0).Add(Retention))
	if v := table.View(ms(3000)); v.Members != 3 {
		t.Errorf("%d members at the edge of retention", v.Members)
	}
	table.Expire(ms(1).Add(Retention))
	if v := table.View(ms(3000)); v.Members != 2 || !v.Fresh {
		t.Errorf("%d members, fresh %v", v.Members, v.Fresh)
	}
	table.Forget("new")
	if v := table.View(ms(3000)); v.Members != 1 || !v.Fresh {
		t.Errorf("%d members, fresh %v", v.Members, v.Fresh)
	}
}

// TestTableIsBounded: names that nobody vouches for cannot fill memory.
func TestTableIsBounded(t *testing.T) {
	table := NewTable("self")
	for i := range 2 * maxReplicas {
		table.Merge(Digest{Replica: fmt.Sprint(i), Sequence: 1}, epoch)
	}
	if n := len(table.others); n != maxReplicas {
		t.Errorf("%d replicas", n)
	}
	if !table.Merge(Digest{Replica: "7", Sequence: 2}, epoch) {
		t.Error("a full table refused news of one it knows")
	}
}

// TestViewFreshness is a table of who was heard when.
func TestViewFreshness(t *testing.T) {
	const now = 10_000
	tests := []struct {
		name    string
		heard   map[string]int // milliseconds ago
		members []string
		want    View
	}{
		{"alone", nil, nil, View{Members: 1, Fresh: true}},
		{"alone, by its own name", nil, []string{"self"}, View{Members: 1, Fresh: true}},
		{"both just heard", map[string]int{"a": 0, "b": 100}, []string{"a", "b"}, View{Members: 3, Fresh: true, Age: 100 * time.Millisecond}},
		{"three intervals", map[string]int{"a": 599}, []string{"a"}, View{Members: 2, Fresh: true, Age: 599 * time.Millisecond}},
		{"one too old", map[string]int{"a": 0, "b": 600}, []string{"a", "b"}, View{Members: 3, Age: 600 * time.Millisecond}},
		{"a member never heard", map[string]int{"a": 0}, []string{"a", "b"}, View{Members: 3, Age: Retention}},
		{"a stranger heard", map[string]int{"a": 0, "gone": 400}, []string{"a"}, View{Members: 2, Fresh: true}},
		{"named twice", map[string]int{"a": 0}, []string{"a", "a"}, View{Members: 2, Fresh: true}},
		{"heard in the future", map[string]int{"a": -50}, []string{"a"}, View{Members: 2, Fresh: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := NewTable("self")
			for name, ago := range tt.heard {
				table.Merge(Digest{Replica: name, Pools: []Pool{{Name: "p", Depth: 1}}}, ms(now-ago))
			}
			got := table.ViewOf(ms(now), tt.members)
			if got.Self != "self" || got.Members != tt.want.Members || got.Fresh != tt.want.Fresh || got.Age != tt.want.Age || !got.At.Equal(ms(now)) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestViewIsASnapshot: it does not change when the table does.
func TestViewIsASnapshot(t *testing.T) {
	table := NewTable("self")
	table.Merge(Digest{Replica: "a", Sequence: 1, Pools: []Pool{{Name: "p", Depth: 1}}}, epoch)
	v := table.View(epoch)
	table.Merge(Digest{Replica: "a", Sequence: 2, Pools: []Pool{{Name: "p", Depth: 7}}}, epoch)
	table.Forget("a")
	if v.Waiting("p") != 1 || v.Replicas[0].Sequence != 1 {
		t.Errorf("the view changed: %+v", v)
	}
}
