package quota

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected parts of testdata")

// fixture is one response and what is to be read from it.
type fixture struct {
	head     string // comments, provider and response, up to the line ---
	provider string
	now      time.Time
	response *http.Response
	body     []byte
	want     string
}

func load(t testing.TB, file string) fixture {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{now: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)}
	head, want, _ := strings.Cut(string(text), "\n---\n")
	f.head, f.want = head, want
	for strings.HasPrefix(head, "#") || strings.HasPrefix(head, "provider:") {
		line, rest, _ := strings.Cut(head, "\n")
		if p, ok := strings.CutPrefix(line, "provider: "); ok {
			f.provider = p
		}
		head = rest
	}
	top, body, _ := strings.Cut(head, "\n\n")
	raw := strings.ReplaceAll(top, "\n", "\r\n") + "\r\n\r\n"
	f.response, err = http.ReadResponse(bufio.NewReader(strings.NewReader(raw)), nil)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	f.response.Body.Close()
	f.body = []byte(body)
	return f
}

// tell writes a reading for people and for comparison.
func tell(r Reading, c Class) string {
	var w strings.Builder
	fmt.Fprintf(&w, "class %s\n", c)
	if r.RetryAfter != Unknown {
		fmt.Fprintf(&w, "retry-after %v\n", r.RetryAfter)
	}
	for _, o := range r.Observations {
		fmt.Fprintf(&w, "%s", o.Unit)
		if o.Window > 0 {
			fmt.Fprintf(&w, " per %v", o.Window)
		}
		if o.Scope != "" {
			fmt.Fprintf(&w, " of %q", o.Scope)
		}
		if o.Limit != Absent {
			fmt.Fprintf(&w, " limit %d", o.Limit)
		}
		if o.Remaining != Absent {
			fmt.Fprintf(&w, " remaining %d", o.Remaining)
		}
		if o.Reset != Unknown {
			fmt.Fprintf(&w, " reset %v", o.Reset)
		}
		if o.Refill != RefillUnknown {
			fmt.Fprintf(&w, " %s", o.Refill)
		}
		fmt.Fprintln(&w)
	}
	for _, u := range r.Uses {
		fmt.Fprintf(&w, "used %s %.4g", u.Name, u.Part)
		if u.Window > 0 {
			fmt.Fprintf(&w, " per %v", u.Window)
		}
		if u.Reset != Unknown {
			fmt.Fprintf(&w, " reset %v", u.Reset)
		}
		fmt.Fprintln(&w)
	}
	if r.Cost != Absent {
		fmt.Fprintf(&w, "cost %d\n", r.Cost)
	}
	if r.OverLimit {
		fmt.Fprintln(&w, "over limit")
	}
	if len(r.Unknown) > 0 {
		fmt.Fprintf(&w, "unknown %s\n", strings.Join(r.Unknown, ", "))
	}
	return w.String()
}

func files(t testing.TB) []string {
	list, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(list) < 60 {
		t.Fatalf("%d fixtures, %v; want 60 or more", len(list), err)
	}
	return list
}

func TestFixtures(t *testing.T) {
	for _, file := range files(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			f := load(t, file)
			var body []byte
			if f.response.StatusCode >= 400 {
				body = f.body
			}
			got := tell(Read(f.provider, f.response.Header, body, f.now), Classify(f.response.StatusCode, f.response.Header, body))
			if *update {
				if err := os.WriteFile(file, []byte(f.head+"\n---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != f.want {
				t.Errorf("got\n%swant\n%s", got, f.want)
			}
		})
	}
}

// Reading twice, or with the names in another case, is the same.
func TestNamesInAnyCase(t *testing.T) {
	for _, file := range files(t) {
		f := load(t, file)
		shouted := http.Header{}
		for name, values := range f.response.Header {
			shouted[http.CanonicalHeaderKey(strings.ToUpper(name))] = values
		}
		a, b := Read(f.provider, f.response.Header, f.body, f.now), Read(f.provider, shouted, f.body, f.now)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %+v and %+v", file, a, b)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		after, ms string
		want      time.Duration
		unknown   bool
	}{
		{"7", "", 7 * time.Second, false},
		{"0", "", 0, false},
		{"1.5", "", 1500 * time.Millisecond, false},
		{"0.0001", "", time.Millisecond, false}, // up
		{"Mon, 30 Nov 2026 10:00:30 GMT", "", 30 * time.Second, false},
		{"Monday, 30-Nov-26 10:00:30 GMT", "", 30 * time.Second, false},
		{"Mon Nov 30 10:00:30 2026", "", 30 * time.Second, false},
		{"Mon, 30 Nov 2026 09:59:00 GMT", "", 0, false}, // the past
		{"Tue, 01 Dec 2026 10:00:01 GMT", "", Unknown, true},
		{"86400", "", 24 * time.Hour, false},
		{"86401", "", Unknown, true},
		{"1000000000000", "", Unknown, true},
		{"-1", "", Unknown, true},
		{"soon", "", Unknown, true},
		{"1e3", "", Unknown, true},
		{"NaN", "", Unknown, true},
		{" ", "", Unknown, true},
		{"", "", Unknown, false},
		{"7", "250", 250 * time.Millisecond, false}, // the finer one goes first
		{"7", "250.5", 251 * time.Millisecond, false},
		{"7", "x", 7 * time.Second, true},
		{"", "0", 0, false},
	} {
		h := http.Header{}
		if test.after != "" {
			h.Set("Retry-After", test.after)
		}
		if test.ms != "" {
			h.Set("Retry-After-Ms", test.ms)
		}
		r := Read("", h, nil, now)
		if r.RetryAfter != test.want || (len(r.Unknown) > 0) != test.unknown {
			t.Errorf("Retry-After %q, ms %q: %v, unknown %v; want %v", test.after, test.ms, r.RetryAfter, r.Unknown, test.want)
		}
	}
}

func TestWait(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"1s": time.Second, "6m0s": 6 * time.Minute, "250ms": 250 * time.Millisecond, "1h2m3.5s": time.Hour + 2*time.Minute + 3500*time.Millisecond,
		"1d": 24 * time.Hour, "2m52.8s": 172800 * time.Millisecond, "4h17m": 257 * time.Minute, "0s": 0, "12µs": time.Millisecond,
		"64": 64 * time.Second, "33011.382867": 33011383 * time.Millisecond, "0.0001": time.Millisecond,
		fmt.Sprint(now.Unix() + 90): 90 * time.Second, fmt.Sprint(now.UnixMilli() + 1500): 1500 * time.Millisecond,
		fmt.Sprint(now.Unix() - 90): 0, "2026-11-30T10:00:30Z": 30 * time.Second, "2026-11-30T11:00:30.5+01:00": 30500 * time.Millisecond,
		"2026-11-30T09:59:59Z": 0, "Mon, 30 Nov 2026 10:00:30 GMT": 30 * time.Second,
	} {
		if got, ok := wait(text, now); !ok || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "-1", "1w", "s", "1d1s", "5x", "1h2", "..s", "1..5s", "NaN", "Inf", "0x10", "1e9", "2027-01-01T00:00:00Z",
		fmt.Sprint(now.UnixMicro()), fmt.Sprint(now.Unix() + 86401), "99999999", "-5s", "1m-2s",
	} {
		if got, ok := wait(text, now); ok {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestAfford(t *testing.T) {
	base := Observation{Limit: 100, Remaining: 40, Reset: 60 * time.Second, Refill: RefillContinuous}
	window, silent, bare := base, base, base
	window.Refill = RefillWindow
	silent.Reset = Unknown
	bare.Remaining = Absent
	for _, test := range []struct {
		o    Observation
		cost int64
		want time.Duration
	}{
		{base, 40, 0}, {base, 41, time.Second}, {base, 70, 30 * time.Second}, {base, 100, time.Minute}, {base, 1000, time.Minute},
		{window, 40, 0}, {window, 41, time.Minute}, {silent, 40, 0}, {silent, 41, Unknown}, {bare, 1, Unknown},
	} {
		if got := test.o.Afford(test.cost); got != test.want {
			t.Errorf("%+v affords %d in %v, want %v", test.o, test.cost, got, test.want)
		}
	}
}

// The table is data: each row names its source, and no two rows of one provider
// mean one name.
func TestFamilies(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Families {
		if f.Source == "" || f.Seen == "" || strings.Count(f.Header, "*") != 1 || f.Header != strings.ToLower(f.Header) {
			t.Errorf("row %+v lacks a source, a date or its star", f)
		}
		if (f.Unit == "") == (f.Use == "") {
			t.Errorf("row %s counts a unit or tells a use, one of both", f.Header)
		}
		if seen[f.Provider+f.Header] {
			t.Errorf("row %s %s stands twice", f.Provider, f.Header)
		}
		seen[f.Provider+f.Header] = true
	}
}

func TestReadEvent(t *testing.T) {
	r := ReadEvent([]byte(`{"type":"rate_limits.updated","event_id":"e","rate_limits":[
		{"name":"requests","limit":1000,"remaining":999,"reset_seconds":0.06},
		{"name":"tokens","limit":50000,"remaining":49950,"reset_seconds":60.5},
		{"name":"songs","limit":1,"remaining":1,"reset_seconds":1}]}`))
	want := "class ok\nrequests limit 1000 remaining 999 reset 60ms continuous\ntokens limit 50000 remaining 49950 reset 1m0.5s continuous\n"
	if got := tell(r, ClassOK); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if r := ReadEvent([]byte(`{"type":"session.updated","rate_limits":[{"name":"requests"}]}`)); len(r.Observations) > 0 {
		t.Errorf("another event gives %+v", r)
	}
}

// FuzzRead: whatever a provider sends, a reading keeps its promises.
func FuzzRead(f *testing.F) {
	for _, file := range files(f) {
		x := load(f, file)
		var head bytes.Buffer
		x.response.Header.Write(&head)
		f.Add(x.provider, head.String(), x.body)
	}
	f.Fuzz(func(t *testing.T, provider, head string, body []byte) {
		response, err := http.ReadResponse(bufio.NewReader(io.MultiReader(
			strings.NewReader("HTTP/1.1 429 X\r\n"), strings.NewReader(head), strings.NewReader("\r\n\r\n"))), nil)
		if err != nil {
			return
		}
		now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
		r := Read(provider, response.Header, body, now)
		Classify(429, response.Header, body)
		if d := r.RetryAfter; d != Unknown && (d < 0 || d > MaxWait) {
			t.Errorf("retry after %v", d)
		}
		for i, o := range r.Observations {
			switch {
			case o.Limit < Absent, o.Remaining < Absent, o.Reset < Unknown, o.Reset > MaxWait, o.Limit == Absent && o.Remaining == Absent:
				t.Errorf("%+v", o)
			case o.Unit == "" && o.Scope == "":
				t.Errorf("%+v counts nothing", o)
			case i > 0 && o.sortKey() <= r.Observations[i-1].sortKey():
				t.Errorf("%+v comes twice or out of order", o)
			}
			if d := o.Afford(1 << 40); d < Unknown || d > MaxWait {
				t.Errorf("%+v affords all in %v", o, d)
			}
		}
		for _, u := range r.Uses {
			if !(u.Part >= 0 && u.Part <= 100) || u.Reset > MaxWait {
				t.Errorf("%+v", u)
			}
		}
	})
}
