package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// watched is a breaker that remembers its changes, and a clock for it.
type watched struct {
	*breaker
	now     time.Time
	changes []string
}

func newWatched() *watched {
	w := &watched{now: time.Now()}
	w.breaker = newBreaker(w.now, func(open bool, why string) {
		w.changes = append(w.changes, fmt.Sprintf("%v %s", open, why))
	})
	return w
}

func TestBreakerOpens(t *testing.T) {
	type event struct {
		ok, bad int64
		hard    bool
		after   time.Duration
	}
	repeat := func(n int, e event) (list []event) {
		for range n {
			list = append(list, e)
		}
		return list
	}
	for name, c := range map[string]struct {
		events []event
		open   bool
	}{
		"two timeouts":                    {repeat(2, event{bad: 1, hard: true}), false},
		"three timeouts":                  {repeat(3, event{bad: 1, hard: true}), true},
		"three an hour apart":             {repeat(3, event{bad: 1, hard: true, after: time.Hour}), true},
		"success between":                 {append(repeat(2, event{bad: 1, hard: true}), append([]event{{ok: 1}}, repeat(2, event{bad: 1, hard: true})...)...), false},
		"one batch of 64 on a lost conn":  {[]event{{ok: 100}, {bad: 64, hard: true}}, false},
		"19 script errors":                {repeat(19, event{bad: 1}), false},
		"20 script errors":                {repeat(20, event{bad: 1}), true},
		"script errors 2 s apart":         {repeat(100, event{bad: 1, after: 2 * time.Second}), false},
		"1 % failures":                    {repeat(50, event{ok: 99, bad: 1, hard: true, after: 10 * time.Millisecond}), false},
		"half of 40 failing":              {repeat(20, event{ok: 1, bad: 1, after: time.Millisecond}), true},
		"less than half failing":          {repeat(100, event{ok: 3, bad: 2, after: time.Millisecond}), false},
		"total failure at 25 calls per s": {repeat(20, event{bad: 1, after: 40 * time.Millisecond}), true},
		"failures that have left the window": {
			append(repeat(15, event{bad: 1}), append([]event{{after: 2 * time.Second}}, repeat(15, event{bad: 1})...)...), false,
		},
	} {
		w := newWatched()
		for _, e := range c.events {
			w.now = w.now.Add(e.after)
			w.record(w.now, e.ok, e.bad, e.hard, "broken")
		}
		if err := w.refusal(); (err != nil) != c.open {
			t.Errorf("%s: refusal is %v, want open %v", name, err, c.open)
		}
	}
}

func TestBreakerCloses(t *testing.T) {
	w := newWatched()
	for range 3 {
		w.record(w.now, 0, 1, true, "timeout: broken")
	}
	if err := w.refusal(); !errors.Is(err, limiter.ErrUnavailable) || !strings.Contains(err.Error(), "timeout: broken") {
		t.Fatalf("refusal: %v", err)
	}
	if w.probeDue(w.now, 0) {
		t.Fatal("a probe is due at once")
	}
	for i, most := range []time.Duration{openFirst, openMost, openMost, openMost} {
		if w.probeDue(w.now.Add(most*8/10-time.Millisecond), 0) || !w.probeDue(w.now.Add(most), 0) {
			t.Fatalf("phase %d: the probe is not due between 80 %% and 100 %% of %v", i, most)
		}
		w.now = w.now.Add(most)
		w.probed(w.now, "connection: still broken")
		if h := w.health(); h.Usable || h.State != "connection: still broken" {
			t.Fatalf("phase %d: %+v", i, h)
		}
	}
	w.record(w.now, 64, 0, false, "") // late replies of before
	if w.refusal() == nil {
		t.Fatal("anything but a probe has closed the breaker")
	}
	w.probed(w.now, "")
	if h := w.health(); w.refusal() != nil || h.State != "ok" || !h.Since.Equal(w.now) {
		t.Fatalf("after a good probe: %v, %+v", w.refusal(), h)
	}
	if got := strings.Join(w.changes, "; "); got != "true timeout: broken; false ok" {
		t.Fatalf("changes told: %s", got)
	}
	if w.lastOK.Store(w.now.UnixNano()); w.probeDue(w.now.Add(99*time.Millisecond), 100*time.Millisecond) {
		t.Fatal("a probe is due though calls succeed")
	}
}
