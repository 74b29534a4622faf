package fairq

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

func TestEmptyQueue(t *testing.T) {
	q := New[int](Config{})
	if it := q.Next(epoch); it != nil {
		t.Errorf("Next of an empty queue: %v", it)
	}
	if when, ok := q.Ready(epoch); ok {
		t.Errorf("an empty queue is ready at %v", when)
	}
	if q.Remove(&Item[int]{}) {
		t.Error("Remove of a stranger succeeded")
	}
	if n := q.Ahead(&Item[int]{}); n != 0 {
		t.Errorf("%d ahead of a stranger", n)
	}
	if l := q.Loads(3); len(l) != 0 {
		t.Errorf("loads %v", l)
	}
}

func TestMisusePanics(t *testing.T) {
	next := func(q *Queue[int]) *Item[int] {
		q.Push(epoch, &Item[int]{}, "n", 1, 1)
		return q.Next(epoch)
	}
	push := func(q *Queue[int], w float64) *Item[int] {
		it := &Item[int]{}
		q.Push(epoch, it, "a", w, 1)
		return it
	}
	tests := []struct {
		name, want string
		f          func(q *Queue[int])
	}{
		{"push twice", "queued already", func(q *Queue[int]) { q.Push(epoch, push(q, 1), "b", 1, 1) }},
		{"requeue of one that was not taken", "did not return", func(q *Queue[int]) { q.Requeue(epoch, push(q, 1), epoch) }},
		{"requeue twice", "did not return", func(q *Queue[int]) {
			push(q, 1)
			it := q.Next(epoch)
			q.Requeue(epoch, it, epoch)
			q.Requeue(epoch, it, epoch)
		}},
		{"requeue after a correction", "did not return", func(q *Queue[int]) {
			it := next(q)
			q.Correct(it, 2)
			q.Requeue(epoch, it, epoch)
		}},
		{"correction of one that was not taken", "Correct of an item", func(q *Queue[int]) { q.Correct(push(q, 1), 2) }},
		{"negative real cost", "cost -1", func(q *Queue[int]) { q.Correct(next(q), -1) }},
		{"cost 0", "cost 0", func(q *Queue[int]) { q.Push(epoch, &Item[int]{}, "a", 1, 0) }},
		{"infinite cost", "cost +Inf", func(q *Queue[int]) { q.Push(epoch, &Item[int]{}, "a", 1, math.Inf(1)) }},
		{"new weight 0", "weight 0", func(q *Queue[int]) { q.SetWeight("a", 0) }},
		{"discipline", "fifo", func(*Queue[int]) { New[int](Config{Discipline: "fifo"}) }},
		{"quantum", "quantum -1", func(*Queue[int]) { New[int](Config{Quantum: -1}) }},
		{"weight 0", "weight 0", func(q *Queue[int]) { push(q, 0) }},
		{"weight -1", "weight -1", func(q *Queue[int]) { push(q, -1) }},
		{"weight NaN", "weight NaN", func(q *Queue[int]) { push(q, math.NaN()) }},
		{"infinite weight", "weight +Inf", func(q *Queue[int]) { push(q, math.Inf(1)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "fairq: ") || !strings.Contains(got, tt.want) {
					t.Errorf("panic %q, want one about %q", got, tt.want)
				}
			}()
			tt.f(New[int](Config{}))
		})
	}
}

// TestReuse: an item that was served may be pushed again, to any tenant.
func TestReuse(t *testing.T) {
	q, it := New[int](Config{}), &Item[int]{Value: 7}
	for i := range 5 {
		q.Push(epoch, it, fmt.Sprint("t", i%2), 1, 1)
		if got := q.Next(epoch); got != it {
			t.Fatalf("round %d: %v", i, got)
		}
	}
	if q.Len() != 0 || q.Tenants() != 0 {
		t.Errorf("%d items, %d tenants", q.Len(), q.Tenants())
	}
}

// TestReady is a table of what holds the queue back.
func TestReady(t *testing.T) {
	tests := []struct {
		name         string
		park         []float64 // instants at which tenants become ready; 0: in the round
		hold         float64   // 0: none
		now, want    float64
		nilJustBelow bool
	}{
		{name: "ready now", park: []float64{0}, now: 1, want: 1},
		{name: "parked", park: []float64{5, 3}, now: 1, want: 3, nilJustBelow: true},
		{name: "parked and due", park: []float64{3, 2}, now: 4, want: 4},
		{name: "one of two ready", park: []float64{5, 0}, now: 1, want: 1},
		{name: "held", park: []float64{0}, hold: 4, now: 1, want: 4, nilJustBelow: true},
		{name: "hold over", park: []float64{0}, hold: 1, now: 2, want: 2},
		{name: "held longer than parked", park: []float64{3}, hold: 4, now: 1, want: 4, nilJustBelow: true},
		{name: "parked longer than held", park: []float64{6}, hold: 4, now: 1, want: 6, nilJustBelow: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := New[int](Config{})
			for i, until := range tt.park {
				it := &Item[int]{Value: i}
				q.Push(at(0), it, fmt.Sprint("t", i), 1, 1)
				if until == 0 {
					continue
				}
				if got := q.Next(at(0)); got != it {
					t.Fatalf("took %v, want the newcomer", got)
				}
				q.Requeue(at(0), it, at(until))
			}
			if tt.hold > 0 {
				q.Hold(at(tt.hold))
			}
			got, ok := q.Ready(at(tt.now))
			if !ok || !got.Equal(at(tt.want)) {
				t.Fatalf("ready at %v (%v), want %v", got.Sub(epoch), ok, tt.want)
			}
			if tt.nilJustBelow && q.Next(got.Add(-1)) != nil {
				t.Error("Next succeeded a nanosecond too early")
			}
			if q.Next(got) == nil {
				t.Error("Next failed at the instant that Ready gave")
			}
		})
	}
}

// TestParkTakesTheLater: of two denials of one tenant the later instant holds.
func TestParkTakesTheLater(t *testing.T) {
	q := New[int](Config{})
	a, b := &Item[int]{Value: 1}, &Item[int]{Value: 2}
	q.Push(at(0), a, "t", 1, 1)
	q.Push(at(0), b, "t", 1, 1)
	q.Next(at(0))
	q.Next(at(0))
	q.Requeue(at(0), b, at(2))
	q.Requeue(at(0), a, at(1))
	if when, _ := q.Ready(at(0)); !when.Equal(at(2)) {
		t.Errorf("ready after %v, want 2s", when.Sub(epoch))
	}
	if it := q.Next(at(2)); it != a {
		t.Errorf("first is %v, want the one that came first", it)
	}
}

// TestNoIdleMemory: when a crowd has left, nothing of it remains but a bounded
// free-list.
func TestNoIdleMemory(t *testing.T) {
	for _, d := range disciplines {
		q := New[int](Config{Discipline: d})
		items := make([]Item[int], 20_000)
		for i := range items {
			q.Push(epoch, &items[i], fmt.Sprint("t", i), float64(1+i%200), float64(1+i%10))
		}
		for i := range items {
			if i%2 == 0 {
				q.Remove(&items[i])
			}
		}
		for q.Next(epoch) != nil {
		}
		if len(q.tenants) != 0 || len(q.sched.order()) != 0 || q.peak != 0 || q.parked != nil {
			t.Errorf("%s: %d tenants, %d in the round, peak %d remain", d, len(q.tenants), len(q.sched.order()), q.peak)
		}
		if s, ok := q.sched.(*swrr[int]); ok && (len(s.round) != 0 || len(s.classes) != 0 || len(s.free) > maxFreeClasses) {
			t.Errorf("%d and %d weights remain, %d are free", len(s.round), len(s.classes), len(s.free))
		}
		free := 0
		for f := q.table.free; f != nil; f = f.next {
			free++
			if f.head != nil || f.name != "" {
				t.Fatalf("%s: a free tenant holds on to what it was", d)
			}
		}
		if free != maxFree || free != q.freed {
			t.Errorf("%s: %d free tenants (counted %d)", d, free, q.freed)
		}
	}
}

// TestDebtsEnd: what sfq remembers of tenants that left is gone when the others
// have caught up, however many there were.
func TestDebtsEnd(t *testing.T) {
	q := New[int](Config{Discipline: SFQ})
	for i := range 500 {
		q.Push(epoch, &Item[int]{}, fmt.Sprint("t", i), 1, 10)
	}
	for range 20 {
		q.Push(epoch, &Item[int]{}, "stays", 1, 1)
	}
	for range 501 {
		q.Next(epoch)
	}
	if n := len(q.tenants); n != 501 {
		t.Errorf("%d tenants are known, want all", n)
	}
	for range 12 {
		q.Next(epoch)
	}
	if n := len(q.tenants); n != 1 {
		t.Errorf("%d tenants are known, want the one that stays", n)
	}
}

// TestNoAllocations covers turns, denials, departures, parking and corrections.
func TestNoAllocations(t *testing.T) {
	for _, d := range disciplines {
		q := New[int](Config{Discipline: d})
		items := make([]Item[int], 100)
		names := make([]string, len(items))
		for i := range items {
			items[i].Value, names[i] = i, fmt.Sprint("t", i)
			q.Push(epoch, &items[i], names[i], float64(1+i%5), float64(1+i%7))
		}
		now := epoch
		turn := func() {
			now = now.Add(time.Second)
			it := q.Next(now)
			q.Requeue(now, it, time.Time{})
			it = q.Next(now)
			q.Requeue(now, it, now.Add(10*time.Second))
			it = q.Next(now)
			q.Correct(it, 8)
			q.Push(now, it, names[it.Value], float64(1+it.Value%5), 5)
			q.Remove(it)
			q.Push(now, it, names[it.Value], float64(1+it.Value%5), 7)
			q.Ahead(it)
			q.Ready(now)
		}
		for range 1000 {
			turn()
		}
		if n := testing.AllocsPerRun(1000, turn); n != 0 {
			t.Errorf("%s: %v allocations per turn", d, n)
		}
	}
}

func TestDumpIsBounded(t *testing.T) {
	q := New[int](Config{})
	for i := range 1000 {
		q.Push(epoch, &Item[int]{}, fmt.Sprint("t", i), 1, 1)
	}
	q.Hold(at(1))
	var b bytes.Buffer
	q.Dump(&b)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 1+maxDump+1 || lines[0] != "queued=1000 tenants=1000 parked=0 hold=00:00:01.000" || lines[len(lines)-1] != "  and 800 more" {
		t.Errorf("%d lines, first %q, last %q", len(lines), lines[0], lines[len(lines)-1])
	}
}
