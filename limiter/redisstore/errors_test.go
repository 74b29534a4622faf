package redisstore

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestFailureText: codes stand once, and those of a wrong configuration name the
// field.
func TestFailureText(t *testing.T) {
	for want, f := range map[string]*failure{
		"NOAUTH Authentication required. (set redis.password)": {"NOAUTH", errors.New("NOAUTH Authentication required.")},
		"LOADING Redis is loading the dataset in memory":       {"LOADING", errors.New("LOADING Redis is loading the dataset in memory")},
		"connection: refused":                                  {kindConnection, errors.New("refused")},
	} {
		if got := f.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLooksAreToldAtTheirEnds: a look or two without an answer is no news, then both
// the beginning and the end are, each time.
func TestLooksAreToldAtTheirEnds(t *testing.T) {
	var log bytes.Buffer
	r := &router{store: &Store{log: slog.New(slog.NewTextHandler(&log, nil))}}
	for range 2 {
		r.looked(nil)
		for range firstLooks - 1 {
			r.looked(errors.New("nobody"))
		}
		r.looked(nil)
		for range 3 * firstLooks {
			r.looked(errors.New("nobody"))
		}
	}
	r.looked(nil)
	if lost, found := strings.Count(log.String(), "unknown"), strings.Count(log.String(), "known\""); lost != 2 || found != 4 {
		t.Errorf("%d lost and %d ends in all, want 2 and 4: %s", lost, found, log.String())
	}
}
