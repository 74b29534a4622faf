package gateway

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What an upstream may take as JSON is read as JSON, whatever its type says.
func TestBodiesAreKnownByTheirBytes(t *testing.T) {
	for body, want := range map[string]bool{
		`{"model":"gold"}`:                     true,
		" \r\n\t{}":                            true,
		"\xEF\xBB\xBF{}":                       true,
		strings.Repeat(" ", 2*sniffed) + "{}":  true,
		"   ":                                  true,
		"":                                     false,
		"--boundary\r\nContent-Disposition: x": false,
		"RIFF....WAVE":                         false,
		"[1]":                                  false,
	} {
		r := httptest.NewRequest("POST", "/v1/audio/transcriptions", strings.NewReader(body))
		if got, wrong := startsObject(r); got != want || wrong != nil {
			t.Errorf("%.20q: %v", body, got)
		}
		if rest, err := io.ReadAll(r.Body); err != nil || string(rest) != body {
			t.Errorf("%.20q: the body became %.20q, %v", body, rest, err)
		}
	}
}

// A member that some upstreams take for a known one, and others not, has no
// cost that could be known.
func TestNamesInAnotherCaseAreRefused(t *testing.T) {
	for body, bad := range map[string]string{
		`{"model":"a","messages":[]}`:          "",
		`{"Model":"gold","messages":[]}`:       "Model",
		`{"model":"a","MODEL":"gold"}`:         "MODEL",
		`{"MAX_TOKENS":100000,"model":"a"}`:    "MAX_TOKENS",
		`{"mode\u004c":"gold"}`:                "modeL",
		"{\"me\u017fsages\":[]}":               "me\u017fsages", // long s: folds to s
		`{"metadata":{"Model":"x"},"n":1}`:     "",
		`{"model":"a","x_Model":1,"Modell":2}`: "",
	} {
		a, ok := readAsk([]byte(body))
		if !ok || a.badName != bad {
			t.Errorf("%s: %q, %v; want %q", body, a.badName, ok, bad)
		}
	}
}

// The two forms of one wait never contradict each other.
func TestMillisecondsFitTheSeconds(t *testing.T) {
	g := &Gateway{spread: func(n int64) int64 { return n / 10 }}
	for _, d := range []int64{1, 999, 1000, 1001, 5000, 9999, 10_000, 30_809, 3_600_000} {
		secs, ms := g.spread.wait(time.Duration(d) * time.Millisecond)
		if secs != (ms+999)/1000 || ms < d || ms > d+d/10 {
			t.Errorf("a wait of %d ms is told as %d s and %d ms", d, secs, ms)
		}
	}
}
