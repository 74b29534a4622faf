package throttle

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
)

// levelsOf makes up what a provider could have said of one quota over some time:
// ends of one window differ a little, and remainders fall within it, as seen by
// clocks that differ.
func levelsOf(rng *rand.Rand, windowed bool, count int) []Level {
	period := time.Duration(1+rng.IntN(60)) * time.Second
	var out []Level
	for range count {
		begun := time.Duration(rng.IntN(4)) * period
		since := time.Duration(rng.Int64N(int64(period)))
		l := Level{Limit: 100 + 100*int64(rng.IntN(2)), Period: period, Windowed: windowed, Seen: noon.Add((begun + since).Truncate(100 * time.Millisecond))}
		if windowed {
			jitter := time.Duration(rng.Int64N(int64(min(period/8, time.Second))))
			l.End, l.Remaining = noon.Add(begun+period+jitter), rng.Int64N(100)
		} else {
			l.End = l.Seen.Add(time.Duration(rng.Int64N(int64(period))))
		}
		out = append(out, l)
	}
	return out
}

// laws of a join: order, grouping and repetition do not matter.
func laws(t *testing.T, a, b, c Level) {
	t.Helper()
	if x, y := a.Merge(b), b.Merge(a); x != y {
		t.Fatalf("not commutative:\n%+v\n%+v\ngive %+v\nand  %+v", a, b, x, y)
	}
	if x, y := a.Merge(b).Merge(c), a.Merge(b.Merge(c)); x != y {
		t.Fatalf("not associative:\n%+v\n%+v\n%+v\ngive %+v\nand  %+v", a, b, c, x, y)
	}
	if x := a.Merge(a); x != a {
		t.Fatalf("not idempotent: %+v gives %+v", a, x)
	}
	if x := a.Merge(b); x.Merge(b) != x || x.Merge(a) != x {
		t.Fatalf("not absorbing: %+v, %+v", a, b)
	}
}

// Q1: any order of snapshots gives the same level.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := levelsOf(rng, seed%2 == 0, 8)
		laws(t, all[0], all[1], all[2])
		var want Level
		for _, l := range all {
			want = want.Merge(l)
		}
		for range 10 {
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			var got Level
			for _, l := range all {
				got = got.Merge(l)
			}
			if got != want {
				t.Fatalf("seed %d: %+v in one order, %+v in another", seed, want, got)
			}
		}
	}
}

// Q1: an older snapshot never raises what is left.
func TestOlderNeverRaises(t *testing.T) {
	for seed := range uint64(300) {
		all := levelsOf(rand.New(rand.NewPCG(seed, 2)), seed%2 == 0, 2)
		newer, older := all[0], all[1]
		older.Limit = newer.Limit
		if older.Seen.After(newer.Seen) {
			newer, older = older, newer
		}
		for ms := 0; ms < 5*60_000; ms += 997 {
			before, after := newer.At(at(ms)), newer.Merge(older).At(at(ms))
			if now := at(ms); !newer.Over(now) && after > before {
				t.Fatalf("seed %d: %v left of %+v, %v with %+v", seed, before, newer, after, older)
			}
		}
	}
}

// Within a window nothing raises what is left, not even a word that seems to be
// newer: when a request was counted is only guessed.
func TestWindowNeverRises(t *testing.T) {
	l := Level{Limit: 100, Period: time.Minute, Windowed: true, End: at(60_000), Remaining: 40, Seen: at(1000)}
	more := l
	more.Remaining, more.Seen, more.End = 45, at(1200), at(60_300)
	if got := l.Merge(more); got.Remaining != 40 || got.End != more.End || got.Seen != more.Seen {
		t.Errorf("%+v", got)
	}
	next := more
	next.End = at(120_000)
	if got := l.Merge(next); got.Remaining != 45 {
		t.Errorf("the next window: %+v", got)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add(uint64(1), true)
	f.Add(uint64(2), false)
	f.Fuzz(func(t *testing.T, seed uint64, windowed bool) {
		all := levelsOf(rand.New(rand.NewPCG(seed, 3)), windowed, 3)
		laws(t, all[0], all[1], all[2])
	})
}

// A level follows from what is told; what tells too little gives none.
func TestLevelOf(t *testing.T) {
	for _, c := range []struct {
		name string
		o    quota.Observation
		want Level
	}{
		{"nothing left told", quota.Observation{Limit: 10, Remaining: quota.Absent, Reset: time.Second}, Level{}},
		{"no limit", quota.Observation{Limit: quota.Absent, Remaining: 3, Reset: time.Second}, Level{}},
		{"a limit of nothing", quota.Observation{Limit: 0, Remaining: 0, Reset: time.Second}, Level{}},
		{"neither window nor reset", quota.Observation{Limit: 10, Remaining: 3, Reset: quota.Unknown}, Level{}},
		{"no reset", quota.Observation{Limit: 10, Remaining: 5, Reset: quota.Unknown, Window: time.Minute, Refill: quota.RefillWindow},
			Level{Limit: 10, Remaining: 5, Period: time.Minute, End: at(30_000), Seen: noon}},
		{"period from the reset", quota.Observation{Limit: 10, Remaining: 5, Reset: 3 * time.Second, Window: time.Minute, Refill: quota.RefillContinuous},
			Level{Limit: 10, Remaining: 5, Period: 6 * time.Second, End: at(3000), Seen: noon}},
		{"window", quota.Observation{Limit: 10, Remaining: 5, Reset: 3 * time.Second, Window: time.Minute, Refill: quota.RefillWindow},
			Level{Limit: 10, Remaining: 5, Period: time.Minute, Windowed: true, End: at(3000), Seen: noon}},
		{"more than there is", quota.Observation{Limit: 10, Remaining: 15, Reset: 3 * time.Second, Refill: quota.RefillWindow},
			Level{Limit: 10, Remaining: 10, Period: 3 * time.Second, Windowed: true, End: at(3000), Seen: noon}},
	} {
		got, ok := levelOf(c.o, noon)
		if ok != (c.want != Level{}) || ok && got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", c.name, got, ok, c.want)
		}
	}
}
