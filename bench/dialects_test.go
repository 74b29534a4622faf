package bench

import (
	"net/http"
	"testing"
	"time"

	reader "github.com/headway-limiter/headway/limiter/quota"
)

// TestDialectsAreUnderstood: what the simulated provider writes in any dialect is
// read back by the package that reads real ones, to the precision of the dialect.
func TestDialectsAreUnderstood(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 300e6, time.UTC)
	requests := &QuotaLevel{QuotaRate{600, time.Minute}, 123, 17500 * time.Millisecond}
	tokens := &QuotaLevel{QuotaRate{90_000, time.Minute}, 4567, 42 * time.Second}
	alone := map[string]bool{"classic": true, "openrouter": true, "ietf": true} // have no tokens
	for _, name := range DialectNames() {
		h := http.Header{}
		Dialects[name](h, now, requests, tokens)
		Dialects[name](http.Header{}, now, nil, nil)
		r := reader.Read(name, h, nil, now)
		if len(r.Unknown) > 0 {
			t.Errorf("%s: not understood: %v in %v", name, r.Unknown, h)
		}
		want := map[reader.Unit]*QuotaLevel{reader.Requests: requests, reader.Tokens: tokens}
		if alone[name] {
			delete(want, reader.Tokens)
		}
		if name == "none" {
			want = nil
		}
		for _, o := range r.Observations {
			l := want[o.Unit]
			if l == nil || o.Limit != l.Limit || o.Remaining != l.Remaining || o.Reset < l.Reset || o.Reset > l.Reset+time.Second {
				t.Errorf("%s: %+v, want %+v", name, o, l)
			}
			delete(want, o.Unit)
		}
		if len(want) > 0 {
			t.Errorf("%s: %v is missing in %+v of %v", name, want, r.Observations, h)
		}
	}
}
