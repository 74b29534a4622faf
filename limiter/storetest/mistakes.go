package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// Edit replaces a part of a script's text.
type Edit struct{ Old, New string }

// mistake is a way to get turns wrong that somebody has tried, and what then
// breaks. Each is put back on purpose.
type mistake struct {
	name   string
	wrong  simMistakes
	edits  []Edit // of the script
	fleet  func(t *testing.T, s Raw) *sim
	n      int
	d      time.Duration
	broken func(f *sim) (what string, broken bool)
}

// small is a fleet that a slow server can serve.
func small(t *testing.T, s Raw) *sim {
	return crowd{replicas: 4, tenants: 20, rate: 100, split: "heavyall"}.fleet(t, s)
}

var mistakes = []mistake{
	{
		name: "tags are not told, and purged at once", wrong: simMistakes{forgetsTags: true},
		edits: []Edit{{"local TAG_BURSTS = 4", "local TAG_BURSTS = 0"}, {"local TAG_STEP = 64", "local TAG_STEP = 0.001"}},
		n:     2, d: 12 * time.Second, broken: unfair,
		fleet: func(t *testing.T, s Raw) *sim {
			return crowd{replicas: 2, tenants: 60, rate: 100, split: "even"}.fleet(t, s)
		},
	},
	{
		name: "tags are not told", wrong: simMistakes{forgetsTags: true}, n: 8, d: 12 * time.Second, broken: unfair,
		fleet: func(t *testing.T, s Raw) *sim {
			return crowd{replicas: 8, tenants: 100, rate: 400, split: "even"}.fleet(t, s)
		},
	},
	{
		name:  "virtual time ignores expired claims",
		edits: []Edit{{"hold = s < hold and s or hold", "hold = expiry >= now and s < hold and s or hold"}},
		n:     4, d: 12 * time.Second, broken: disorderly,
		fleet: func(t *testing.T, s Raw) *sim {
			f := small(t, s)
			f.stall = pauses
			return f
		},
	},
	{
		name: "since is the last start", wrong: simMistakes{sinceStart: true}, n: 4, d: 20 * time.Second,
		fleet: halves, broken: unfair,
	},
	{
		name: "only the bucket is corrected", wrong: simMistakes{keepsTag: true}, n: 4, d: 20 * time.Second,
		fleet: halves, broken: unfair,
	},
	{
		name: "remembered tags are raised to virtual time, ties by name", wrong: simMistakes{raisesTags: true},
		n: 8, d: 32 * time.Second,
		fleet: func(t *testing.T, s Raw) *sim {
			f := crowd{replicas: 8, tenants: 100, rate: 400, split: "even"}.fleet(t, s)
			f.bids = 2
			return f
		},
		broken: func(f *sim) (string, bool) {
			return fmt.Sprintf("F4: the poorest backlogged tenant got %.3f of its share, at least 0.9", f.poorest()), f.poorest() < 0.9
		},
	},
	{
		name:  "a claim covers its head alone",
		edits: []Edit{{"cost = head.cost + min(rests, behind)", "cost = head.cost"}},
		n:     2, d: 6 * time.Second,
		fleet: func(t *testing.T, s Raw) *sim {
			f := crowd{replicas: 2, tenants: 5, rate: 800, split: "sticky"}.fleet(t, s)
			for i, w := range f.tenants { // one replica deserves several turns per rest
				w.rate, w.at = 0, []int{max(0, i-3)}
			}
			return f
		},
		broken: func(f *sim) (string, bool) {
			return fmt.Sprintf("F1: two tenants differed by %.1f costs, at most 16", f.lag.worst()), f.lag.worst() > 16
		},
	},
	{
		name:  "every replica is told the same wait",
		edits: []Edit{{"wait = max(until_there(min(need, full)), min(PATIENCE, until_there(need)))", "wait = until_there(head.cost)"}},
		n:     8, d: 12 * time.Second,
		fleet: func(t *testing.T, s Raw) *sim {
			return crowd{replicas: 8, tenants: 30, rate: 20, split: "even"}.fleet(t, s)
		},
		broken: func(f *sim) (string, bool) {
			return fmt.Sprintf("F8: %.2f calls per grant, want 4", f.callsPerGrant()), f.callsPerGrant() > 4
		},
	},
}

func unfair(f *sim) (string, bool) {
	return fmt.Sprintf("F2: Jain %.4f, want 0.995", f.jain()), f.jain() < 0.995
}

func disorderly(f *sim) (string, bool) { return f.guard.broken, f.guard.broken != "" }

// fixed is the same run of chance each time: whether a mistake shows within a
// few seconds is a matter of luck, and a regression test wants none.
func fixed() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

// Mistakes puts every mistake back, one at a time, and wants its bound broken,
// and the same bound kept without the mistake. open makes a server whose script
// for turns has been edited.
func Mistakes(t *testing.T, open func(t *testing.T, edits []Edit) Virtual) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			right := m.fleet(t, open(t, nil))
			right.rnd = fixed()
			right.run(m.n, m.d)
			if what, broken := m.broken(right); broken {
				t.Errorf("without the mistake: %s", what)
			}
			wrong := m.fleet(t, open(t, m.edits))
			wrong.wrong, wrong.rnd = m.wrong, fixed()
			wrong.run(m.n, m.d)
			what, broken := m.broken(wrong)
			t.Logf("%s\nright: %v\nwrong: %v", what, right, wrong)
			if !broken {
				t.Errorf("the mistake is not noticed: %s", what)
			}
		})
	}
}
