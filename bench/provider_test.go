package bench

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func startUpstream(t *testing.T, cfg ProviderConfig) *Upstream {
	t.Helper()
	u, err := StartUpstream("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

// call posts body to path; header holds name and value alternately.
func call(t *testing.T, u *Upstream, method, path, body string, header ...string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, u.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// answer posts body, wants status, and decodes the answer.
func answer(t *testing.T, u *Upstream, path, body string, status int, header ...string) (out map[string]any) {
	t.Helper()
	resp, err := call(t, u, "POST", path, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status {
		data, _ := io.ReadAll(resp.Body)
		t.Fatalf("POST %s: status %d, want %d: %s", path, resp.StatusCode, status, data)
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	return out
}

// at walks v along keys of objects and indexes of lists.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			v = v.(map[string]any)[p]
		case int:
			v = v.([]any)[p]
		}
	}
	return v
}

const chatBody = `{"model":"m","user":"from-body","messages":[{"role":"user","content":"hello there"}]}`

func TestProviderAnswers(t *testing.T) {
	u := startUpstream(t, ProviderConfig{Tokens: Constant(3), Models: []string{"m", "n"}})
	chat := answer(t, u, "/v1/chat/completions", chatBody, 200)
	if at(t, chat, "object") != "chat.completion" || at(t, chat, "choices", 0, "message", "content") != "word word word" ||
		at(t, chat, "choices", 0, "finish_reason") != "stop" || at(t, chat, "usage", "completion_tokens") != 3.0 {
		t.Errorf("chat answer %v", chat)
	}
	text := answer(t, u, "/v1/completions", `{"model":"m","prompt":"hi","max_tokens":2}`, 200)
	if at(t, text, "object") != "text_completion" || at(t, text, "choices", 0, "text") != "word word" ||
		at(t, text, "choices", 0, "finish_reason") != "length" {
		t.Errorf("completion answer %v", text)
	}
	embed := answer(t, u, "/v1/embeddings", `{"model":"m","input":["a","b"],"dimensions":4}`, 200)
	if len(at(t, embed, "data").([]any)) != 2 || at(t, embed, "data", 1, "embedding", 3) != 0.5 {
		t.Errorf("embedding answer %v", embed)
	}
	packed := answer(t, u, "/v1/embeddings", `{"model":"m","input":"a","dimensions":1,"encoding_format":"base64"}`, 200)
	if at(t, packed, "data", 0, "embedding") != "AACAPw==" { // 1.0, little endian
		t.Errorf("base64 embedding answer %v", packed)
	}
	plain := answer(t, u, "/anything/at/all", "12345", 200)
	if at(t, plain, "path") != "/anything/at/all" || at(t, plain, "received_bytes") != 5.0 {
		t.Errorf("plain answer %v", plain)
	}
	resp, err := call(t, u, "GET", "/v1/models", "")
	if err != nil {
		t.Fatal(err)
	}
	var models map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&models); err != nil || at(t, models, "data", 1, "id") != "n" {
		t.Errorf("models %v, error %v", models, err)
	}
	s := u.Ledger().Snapshot()
	if s.Total.Starts != 6 || s.Total.InFlight != 0 || s.Tenants["from-body"].Starts != 1 {
		t.Errorf("ledger %+v, want 6 starts, one of from-body, none in flight", s)
	}
}

func TestProviderRejectsBadBodies(t *testing.T) {
	u := startUpstream(t, ProviderConfig{})
	answer(t, u, "/v1/chat/completions", `{"model":`, 400)
	answer(t, u, "/v1/chat/completions", `{"model":7}`, 400)
	answer(t, u, "/v1/chat/completions", `"`+strings.Repeat("x", maxBody)+`"`, 413)
	if s := u.Ledger().Snapshot(); s.Total.Starts != 0 {
		t.Errorf("bad bodies were written down: %+v", s.Total)
	}
}

// events reads a stream of events.
func events(t *testing.T, r io.Reader) (data []string) {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			data = append(data, text)
		}
	}
	return data
}

func TestProviderStreams(t *testing.T) {
	u := startUpstream(t, ProviderConfig{Tokens: Constant(3)})
	for _, c := range []struct {
		name, path, body string
		events           int
		usage            bool
	}{
		{"chat", "/v1/chat/completions", `{"stream":true,"messages":[]}`, 1 + 3 + 1 + 1, false},
		{"chat with usage", "/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true},"messages":[]}`, 1 + 3 + 1 + 1 + 1, true},
		{"completion", "/v1/completions", `{"stream":true,"prompt":""}`, 3 + 1 + 1, false},
	} {
		resp, err := call(t, u, "POST", c.path, c.body)
		if err != nil {
			t.Fatal(err)
		}
		got := events(t, resp.Body)
		if len(got) != c.events || got[len(got)-1] != "[DONE]" {
			t.Fatalf("%s: %d events %q, want %d and [DONE] at the end", c.name, len(got), got, c.events)
		}
		var first, last map[string]any
		if err := json.Unmarshal([]byte(got[0]), &first); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(got[len(got)-2]), &last); err != nil {
			t.Fatal(err)
		}
		usage, present := first["usage"]
		if usage != nil || present != c.usage {
			t.Errorf("%s: first event has usage %v, present %v; want null, present %v", c.name, usage, present, c.usage)
		}
		if c.usage && (len(last["choices"].([]any)) != 0 || at(t, last, "usage", "completion_tokens") != 3.0) {
			t.Errorf("%s: usage event %v", c.name, last)
		}
		if !c.usage && at(t, last, "choices", 0, "finish_reason") != "stop" {
			t.Errorf("%s: last event %v", c.name, last)
		}
	}
}

// spy is a client that looks into the ledger at every write.
type spy struct {
	*httptest.ResponseRecorder
	ledger  *Ledger
	running []int64 // requests in flight at each write
}

// Write implements http.ResponseWriter.
func (s *spy) Write(p []byte) (int, error) {
	s.running = append(s.running, s.ledger.Snapshot().Total.InFlight)
	return s.ResponseRecorder.Write(p)
}

// TestProviderEndsBeforeLastByte: whoever has read an answer finds the place
// free, and a stream holds it until then.
func TestProviderEndsBeforeLastByte(t *testing.T) {
	p, err := NewProvider(ProviderConfig{Tokens: Constant(2)})
	if err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[],"stream":true}`,
		"/v1/completions":      `{"prompt":""}`,
		"/v1/embeddings":       `{"input":""}`,
		"/plain":               "",
	} {
		for _, fault := range []Fault{"", FaultBroken} {
			s := &spy{ResponseRecorder: httptest.NewRecorder(), ledger: p.Ledger()}
			r := httptest.NewRequest("POST", path, strings.NewReader(body))
			r.Header.Set(HeaderFault, string(fault))
			p.ServeHTTP(s, r)
			if n := len(s.running); n == 0 || s.running[n-1] != 0 {
				t.Errorf("%s, fault %q: in flight at each write %v, want 0 at the last", path, fault, s.running)
			}
			for _, n := range s.running[:len(s.running)-1] {
				if n != 1 {
					t.Errorf("%s, fault %q: in flight at each write %v, want 1 before the last", path, fault, s.running)
				}
			}
		}
	}
}

func TestProviderPeakPerTenant(t *testing.T) {
	u := startUpstream(t, ProviderConfig{})
	var wg sync.WaitGroup
	for tenant, n := range map[string]int{"a": 5, "b": 2} {
		for range n {
			wg.Go(func() {
				resp, err := call(t, u, "POST", "/v1/chat/completions", chatBody, HeaderTenant, tenant, HeaderFault, "hang")
				if err == nil {
					t.Errorf("a hanging call of %s was answered with %d", tenant, resp.StatusCode)
				}
			})
		}
	}
	waitFor(t, func() bool { return u.Ledger().Snapshot().Total.InFlight == 7 })
	u.Close() // cuts them off
	wg.Wait()
	waitFor(t, func() bool { return u.Ledger().Snapshot().Total.InFlight == 0 })
	s := u.Ledger().Snapshot()
	if s.Tenants["a"].Peak != 5 || s.Tenants["b"].Peak != 2 || s.Total.Peak != 7 || s.Faults[FaultHang] != 7 {
		t.Errorf("ledger %+v, want peaks 5, 2 and 7, and 7 hung", s)
	}
}

// waitFor polls over real sockets, for at most five seconds.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("condition not reached within 5s")
		}
	}
}

func TestProviderFaults(t *testing.T) {
	u := startUpstream(t, ProviderConfig{Tokens: Constant(20)})
	for fault, status := range map[Fault]int{FaultQuota: 429, FaultBroken: 500, FaultDown: 503, FaultOverloaded: 529} {
		got := answer(t, u, "/v1/chat/completions", chatBody, status, HeaderFault, string(fault))
		if at(t, got, "error", "code") != "simulated_fault" {
			t.Errorf("fault %s: %v", fault, got)
		}
	}
	if _, err := call(t, u, "POST", "/v1/chat/completions", chatBody, HeaderFault, "reset"); err == nil {
		t.Error("fault reset: got an answer")
	}
	for _, body := range []string{chatBody, `{"stream":true,"messages":[]}`} {
		resp, err := call(t, u, "POST", "/v1/chat/completions", body, HeaderFault, "cut")
		if err != nil {
			t.Fatalf("fault cut: %v before the head of the answer", err)
		}
		data, err := io.ReadAll(resp.Body)
		if err == nil || len(data) == 0 || strings.Contains(string(data), "[DONE]") {
			t.Errorf("fault cut: read %q, error %v; want half an answer and an error", data, err)
		}
	}
	waitFor(t, func() bool { return u.Ledger().Snapshot().Total.InFlight == 0 })
	if s := u.Ledger().Snapshot(); s.Total.Starts != 7 || s.Faults[FaultCut] != 2 {
		t.Errorf("ledger %+v, want 7 starts, 2 of them cut", s)
	}
}

func TestProviderFaultsByChanceRepeat(t *testing.T) {
	statuses := func() (got []int) {
		u := startUpstream(t, ProviderConfig{Seed: 5, Faults: []FaultRule{{FaultBroken, 0.3}, {FaultOverloaded, 0.2}}})
		for range 60 {
			resp, err := call(t, u, "POST", "/v1/chat/completions", chatBody)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			got = append(got, resp.StatusCode)
		}
		return got
	}
	one, two := statuses(), statuses()
	if !slices.Equal(one, two) {
		t.Errorf("one seed, two sequences:\n%v\n%v", one, two)
	}
	for _, want := range []int{200, 500, 529} {
		if !slices.Contains(one, want) {
			t.Errorf("no %d in %v", want, one)
		}
	}
}

func TestProviderLatencyByHeader(t *testing.T) {
	u := startUpstream(t, ProviderConfig{Latency: Constant(60)})
	begin := time.Now()
	resp, err := call(t, u, "POST", "/v1/chat/completions", chatBody, HeaderLatency, "30ms")
	if err != nil {
		t.Fatal(err)
	}
	took, said := time.Since(begin), serviceTime(resp.Header)
	if said < 30*time.Millisecond || said > took {
		t.Errorf("service time %v of %v, want at least 30ms and at most all of it", said, took)
	}
}

func TestProviderQuota(t *testing.T) {
	u := startUpstream(t, ProviderConfig{Quota: QuotaConfig{Requests: QuotaRate{2, time.Hour}, Tokens: QuotaRate{1000, time.Hour}}})
	for left := 1; left >= 0; left-- {
		resp, err := call(t, u, "POST", "/v1/chat/completions", chatBody)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("x-ratelimit-remaining-requests"); resp.StatusCode != 200 || got != string(rune('0'+left)) {
			t.Fatalf("status %d, remaining %q, want 200 and %d", resp.StatusCode, got, left)
		}
	}
	for range 2 { // a refusal takes nothing: the second is told the same
		resp, err := call(t, u, "POST", "/v1/chat/completions", chatBody)
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
			t.Fatal(err)
		}
		if got := resp.Header.Get("Retry-After"); resp.StatusCode != 429 || got != "1800" || at(t, body, "error", "type") != "requests" {
			t.Errorf("status %d, Retry-After %q, body %v; want 429, 1800, type requests", resp.StatusCode, got, body)
		}
	}
	if s := u.Ledger().Snapshot(); s.Refused != 2 || s.Total.Starts != 2 {
		t.Errorf("ledger %+v, want 2 starts and 2 refused", s)
	}
}

func TestQuotaMeters(t *testing.T) {
	begin := time.Unix(1000, 0)
	type step struct {
		at   time.Duration
		cost int64
		want time.Duration // 0: charged
	}
	for _, c := range []struct {
		name  string
		fixed bool
		steps []step
	}{
		{"bucket", false, []step{
			{0, 8, 0}, {0, 4, 2 * time.Second}, {time.Second, 4, time.Second}, {2 * time.Second, 4, 0}, {2 * time.Second, 1, time.Second},
		}},
		{"fixed window", true, []step{
			{0, 8, 0}, {time.Second, 4, 9 * time.Second}, {9 * time.Second, 2, 0}, {10 * time.Second, 10, 0}, {35 * time.Second, 10, 0}, {36 * time.Second, 1, 4 * time.Second},
		}},
		{"above the limit waits for a full one", false, []step{{0, 1, 0}, {0, 15, time.Second}, {time.Second, 15, 0}, {time.Second, 1, 6 * time.Second}}},
	} {
		m := newMeter(QuotaRate{10, 10 * time.Second}, c.fixed)
		for i, s := range c.steps {
			got := m.wait(begin.Add(s.at), s.cost)
			if got.Round(time.Microsecond) != s.want {
				t.Errorf("%s step %d (%v, cost %d): wait %v, want %v", c.name, i, s.at, s.cost, got, s.want)
			}
			if got == 0 {
				m.charge(s.cost)
			}
		}
	}
}

func TestLedgerOverHTTP(t *testing.T) {
	u := startUpstream(t, ProviderConfig{})
	answer(t, u, "/v1/chat/completions", chatBody, 200, HeaderTenant, "a", "Authorization", "Bearer sk-very-secret")
	get := func() (s Snapshot, raw string) {
		resp, err := call(t, u, "GET", "/ledger", "")
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(resp.Body)
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatalf("%v in %s", err, data)
		}
		return s, string(data)
	}
	s, raw := get()
	if s.Tenants["a"].Starts != 1 || s.Total.Starts != 1 || strings.Contains(raw, "secret") {
		t.Errorf("ledger %s", raw)
	}
	if resp, err := call(t, u, "POST", "/ledger/reset", ""); err != nil || resp.StatusCode != 204 {
		t.Fatalf("reset: %v, %v", resp, err)
	}
	if s, raw := get(); s.Total.Starts != 0 || len(s.Tenants) != 0 {
		t.Errorf("after reset %s", raw)
	}
}

func TestProviderConfigMistakes(t *testing.T) {
	for _, cfg := range []ProviderConfig{
		{Faults: []FaultRule{{"explode", 0.5}}},
		{Faults: []FaultRule{{FaultHang, 1.5}}},
		{Quota: QuotaConfig{Dialect: "klingon"}},
		{Quota: QuotaConfig{Requests: QuotaRate{Limit: 5}}},
	} {
		if _, err := NewProvider(cfg); err == nil || !strings.HasPrefix(err.Error(), "bench: ") {
			t.Errorf("NewProvider(%+v): error %v, want one of bench", cfg, err)
		}
	}
}
