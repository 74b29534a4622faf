package gossip

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLostNameIsToldRarely: a name that does not resolve is a warning when it begins,
// then once in warnEvery, and a word when it does again.
func TestLostNameIsToldRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := &Node{cfg: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, lost: map[string]time.Time{}}
		gone := errors.New("no such host")
		expect := func(warnings, ends int) {
			t.Helper()
			if w, e := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO"); w != warnings || e != ends {
				t.Errorf("%d warnings and %d ends, want %d and %d: %s", w, e, warnings, ends, log.String())
			}
		}
		n.resolved("a:1", nil)
		n.resolved("a:1", context.Canceled)
		expect(0, 0)
		for range 100 {
			n.resolved("a:1", gone)
			time.Sleep(time.Second)
		}
		expect(1, 0)
		n.resolved("b:1", gone)
		expect(2, 0)
		time.Sleep(warnEvery)
		n.resolved("a:1", gone)
		expect(3, 0)
		n.resolved("a:1", nil)
		n.resolved("a:1", nil)
		expect(3, 1)
		n.resolved("a:1", gone)
		expect(4, 1)
	})
}

// TestStartTellsOfLostNames: so it is found out when a node starts.
func TestStartTellsOfLostNames(t *testing.T) {
	l := &logs{}
	// Two dots in a row are no name, which is found out without asking anybody.
	n, err := Start(Config{Name: "r", Bind: "127.0.0.1:0", Join: []string{"no..name:7946"}, Logger: slog.New(slog.NewTextHandler(l, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(dead)
	for until := time.Now().Add(10 * time.Second); !strings.Contains(l.String(), "does not resolve\" addr=no..name:7946"); <-time.After(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("no warning: %s", l.String())
		}
	}
}
