package main

import (
	"io"
	"log/slog"
	"testing"
)

// TestFirstLookTellsItsLevels: answers tell the levels of keys alone, so the limit
// that a first look runs into has to be one of keys, and nothing else to limit.
func TestFirstLookTellsItsLevels(t *testing.T) {
	cfg, end, err := firstLook(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if l := cfg.RateLimiting.PerAPIKey.Requests; l == nil || l.Limit != 5 || l.Burst != 10 {
		t.Errorf("per_api_key has requests %+v, want 5/s and a burst of 10, as README says", l)
	}
	if w := cfg.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
}
