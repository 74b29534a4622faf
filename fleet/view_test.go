package fleet

import (
	"fmt"
	"testing"
	"time"
)

// viewOf is a fresh view of replicas that each have one pool "p".
func viewOf(pools ...Pool) *View {
	table := NewTable("self")
	for i, p := range pools {
		p.Name = "p"
		table.Merge(Digest{Replica: fmt.Sprint(i), Pools: []Pool{p}}, epoch)
	}
	return table.View(epoch)
}

func TestAhead(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name    string
		others  []Pool
		ahead   int
		spacing time.Duration
		want    int
	}{
		{"alone", nil, 4, s, 4},
		{"as fast and as long", []Pool{{Spacing: s, Depth: 10}}, 4, s, 8},
		{"as fast but short", []Pool{{Spacing: s, Depth: 3}}, 4, s, 7},
		{"twice as fast", []Pool{{Spacing: s / 2, Depth: 100}}, 4, s, 12},
		{"a third as fast, rounded", []Pool{{Spacing: 3 * s, Depth: 100}}, 4, s, 5},
		{"half a grant rounds up", []Pool{{Spacing: 2 * s, Depth: 100}}, 1, s, 2},
		{"own spacing unknown", []Pool{{Spacing: s, Depth: 3}}, 5, 0, 8},
		{"other spacing unknown", []Pool{{Depth: 9}}, 5, s, 10},
		{"first in line", []Pool{{Spacing: s, Depth: 100}}, 0, s, 0},
		{"nobody waits there", []Pool{{Spacing: s}}, 5, s, 5},
		{"two others", []Pool{{Spacing: s, Depth: 2}, {Spacing: 2 * s, Depth: 9}}, 4, s, 8},
		{"absurdly fast", []Pool{{Spacing: 1, Depth: 1 << 30}}, 1 << 30, time.Hour, 1 << 31},
	}
	for _, tt := range tests {
		if got := viewOf(tt.others...).Ahead("p", tt.ahead, tt.spacing); got != tt.want {
			t.Errorf("%s: %d ahead, want %d", tt.name, got, tt.want)
		}
	}
	if got := viewOf(Pool{Spacing: s, Depth: 5}).Ahead("another", 3, s); got != 3 {
		t.Errorf("another pool: %d ahead, want 3", got)
	}
}

func TestSpacing(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name   string
		others []Pool
		own    time.Duration
		want   time.Duration
	}{
		{"alone", nil, s, s},
		{"nobody knows", []Pool{{}}, 0, 0},
		{"two equals", []Pool{{Spacing: s}}, s, s / 2},
		{"own unknown", []Pool{{Spacing: s}}, 0, s},
		{"others unknown", []Pool{{}, {}}, s, s},
		{"uneven", []Pool{{Spacing: 3 * s}, {Spacing: 6 * s}}, 2 * s, s},
	}
	for _, tt := range tests {
		got := viewOf(tt.others...).Spacing("p", tt.own)
		if d := got - tt.want; d < -1 || d > 1 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestExpect(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name   string
		others []Pool
		own    time.Duration
		want   time.Duration
	}{
		{"known", []Pool{{Spacing: s}}, 3 * s, 3 * s},
		{"alone and unknown", nil, 0, 0},
		{"nobody knows", []Pool{{}, {}}, 0, 0},
		{"third of equals", []Pool{{Spacing: 2 * s}, {Spacing: 2 * s}, {}}, 0, 3 * s},
		{"second", []Pool{{Spacing: s}}, 0, 2 * s},
	}
	for _, tt := range tests {
		if got := viewOf(tt.others...).Expect("p", tt.own); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestStalePoolsDoNotCount: a replica not heard of lately is not waited for.
func TestStalePoolsDoNotCount(t *testing.T) {
	table := NewTable("self")
	table.Merge(Digest{Replica: "a", Pools: []Pool{{Name: "p", Depth: 5, Spacing: time.Second}}}, ms(0))
	table.Merge(Digest{Replica: "b", Pools: []Pool{{Name: "p", Depth: 2, Spacing: time.Second}}}, ms(500))
	v := table.View(ms(700))
	if v.Waiting("p") != 2 || v.Ahead("p", 9, time.Second) != 11 || v.Spacing("p", time.Second) != time.Second/2 {
		t.Errorf("waiting %d, ahead %d, spacing %v", v.Waiting("p"), v.Ahead("p", 9, time.Second), v.Spacing("p", time.Second))
	}
	if len(v.Replicas) != 2 {
		t.Errorf("%d replicas, want both for the debug page", len(v.Replicas))
	}
}

func TestSolo(t *testing.T) {
	f := Solo("me")
	f.Publish([]Pool{{Name: "p", Depth: 3}}, 1)
	v := f.View()
	if v.Self != "me" || v.Members != 1 || !v.Fresh || v.Age != 0 || v.Ahead("p", 2, time.Second) != 2 || v.Spacing("p", time.Second) != time.Second {
		t.Errorf("view %+v", v)
	}
}

// Two replicas share a model that grants four requests a second. Somebody with
// three others before it here is told of those before it elsewhere too.
func ExampleView_Ahead() {
	table := NewTable("gw-1")
	now := time.Now()
	table.Merge(Digest{
		Replica: "gw-2", Incarnation: 1, Sequence: 1,
		Pools: []Pool{{Name: "model:gpt", Spacing: 500 * time.Millisecond, Depth: 2}},
	}, now)
	view := table.View(now)

	here := 500 * time.Millisecond
	fmt.Println("position", 1+view.Ahead("model:gpt", 3, here), "in a fleet of", view.Members)
	fmt.Println("the fleet grants one every", view.Spacing("model:gpt", here))
	fmt.Println("three ahead here take about", 3*view.Expect("model:gpt", here))
	// Output:
	// position 6 in a fleet of 2
	// the fleet grants one every 250ms
	// three ahead here take about 1.5s
}

// TestViewSumsAgents: what others hold counts while they are heard of.
func TestViewSumsAgents(t *testing.T) {
	table := NewTable("self")
	for i, name := range []string{"a", "b"} {
		table.Merge(Digest{Replica: name, Agents: []AgentLoad{{"x", 3 + i, i}, {"y", 1, 0}}}, epoch.Add(time.Duration(i)*FreshFor))
	}
	if got, want := table.View(epoch).Agent("x"), (AgentLoad{"x", 7, 1}); got != want {
		t.Errorf("of both: %+v, want %+v", got, want)
	}
	if got, want := table.View(epoch.Add(FreshFor)).Agent("x"), (AgentLoad{"x", 4, 1}); got != want {
		t.Errorf("of the one heard of lately: %+v, want %+v", got, want)
	}
	if got := Solo("me").View().Agent("x"); got != (AgentLoad{}) {
		t.Errorf("of nobody: %+v", got)
	}
}
