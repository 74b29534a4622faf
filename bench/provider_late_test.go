package bench

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseLate(t *testing.T) {
	for text, want := range map[string]LateRule{"0.2:300ms": {0.2, 300 * time.Millisecond}, "0:0s": {}, "1:1s": {1, time.Second}} {
		if got, err := ParseLate(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0.2", "x:1s", "0.2:x", "2:1s", "-1:1s", "NaN:1s", "0.2:0s", "0.2:-1s", "0.2:1h"} {
		if r, err := ParseLate(text); err == nil {
			t.Errorf("%q is taken for %+v", text, r)
		}
	}
}

// TestLateAnswers asks for a request every 10 ms, in every dialect: about half of the
// spoiled answers tell a level that was true a while ago, and others are overtaken.
func TestLateAnswers(t *testing.T) {
	for _, dialect := range DialectNames() {
		synctest.Test(t, func(t *testing.T) {
			const requests, by = 400, 300 * time.Millisecond
			p, err := NewProvider(ProviderConfig{Seed: 3, Late: LateRule{0.5, by},
				Quota: QuotaConfig{Requests: QuotaRate{1000, time.Hour}, Fixed: true, Dialect: dialect}})
			if err != nil {
				t.Fatal(err)
			}
			var order []int
			left := map[int]int{}
			mu := make(chan struct{}, 1)
			for i := range requests {
				go func() {
					w := httptest.NewRecorder()
					p.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m"}`)))
					mu <- struct{}{}
					defer func() { <-mu }()
					order = append(order, i)
					if n, err := strconv.Atoi(remaining(w)); err == nil {
						left[i] = n
					}
				}()
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(by)
			synctest.Wait()
			if slices.IsSorted(order) {
				t.Errorf("%s: all answers came in the order in which they were asked for", dialect)
			}
			old := 0
			for i, n := range left {
				back := n - (1000 - i - 1) // a request every 10 ms took one
				if old += min(back, 1); back < 0 || back > int(by/(10*time.Millisecond))+1 {
					t.Errorf("%s: answer %d tells %d left, of %d requests ago", dialect, i, n, back)
				}
			}
			if dialect == "none" {
				return
			}
			if len(left) != requests || old < requests/8 || old > requests/2 {
				t.Errorf("%s: %d of %d answers tell of the past, want about a quarter; levels in %d", dialect, old, requests, len(left))
			}
		})
	}
}

// remaining finds what is left of the requests, in any dialect.
func remaining(w *httptest.ResponseRecorder) string {
	for name, values := range w.Header() {
		if name = strings.ToLower(name); strings.Contains(name, "remaining") {
			return values[0]
		}
		if name == "ratelimit" {
			var n int
			if _, err := fmt.Sscanf(values[0], `"default";r=%d;`, &n); err == nil {
				return strconv.Itoa(n)
			}
		}
	}
	return ""
}
