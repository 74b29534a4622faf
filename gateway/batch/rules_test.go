package batch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
)

// refused checks the status and code of an answer.
func (s *site) refused(method, path, key, kind string, body []byte, status int, code string) {
	s.t.Helper()
	got, text := s.call(method, path, key, kind, body)
	var o struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal([]byte(text), &o)
	if got != status || o.Error.Code != code || o.Error.Message == "" {
		s.t.Errorf("%s %s: %d %s, want %d %s", method, path, got, text, status, code)
	}
}

// ask is the body of a new batch.
func ask(file, more string) []byte {
	return fmt.Appendf(nil, `{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"%s}`, file, more)
}

// TestOwnersAndBounds: nobody sees what is another's, every bound names itself, and
// lists come in pages.
func TestOwnersAndBounds(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u, "batch: {enabled: true, workers: 0, max_file: 4KiB, max_files_per_tenant: 4, max_jobs_per_tenant: 5}\n")
	file := s.upload("ann", "\n"+lines("a", 3)+"\r\n")
	b := s.batch("ann", file).text("id")

	const js = "application/json"
	for _, path := range []string{"/v1/files/" + file, "/v1/files/" + file + "/content", "/v1/files/none"} {
		s.refused("GET", path, "bob", "", nil, 404, "file_not_found")
	}
	s.refused("DELETE", "/v1/files/"+file, "bob", "", nil, 404, "file_not_found")
	s.refused("GET", "/v1/batches/"+b, "bob", "", nil, 404, "batch_not_found")
	s.refused("POST", "/v1/batches/"+b+"/cancel", "bob", "", nil, 404, "batch_not_found")
	s.refused("POST", "/v1/batches", "bob", js, ask(file, ""), 404, "file_not_found")
	s.refused("GET", "/v1/files", "nobody", "", nil, 401, "invalid_api_key")
	s.refused("PATCH", "/v1/files", "ann", "", nil, 404, "unknown_url")
	if l := s.must("GET", "/v1/files", "bob", nil); len(l["data"].([]any)) != 0 {
		t.Errorf("bob's files: %v", l)
	}
	if _, text := s.call("GET", "/v1/files/"+file+"/content", "ann", "", nil); text != lines("a", 3) {
		t.Errorf("content %q", text)
	}

	kind, body := form("fine-tune", lines("a", 1))
	s.refused("POST", "/v1/files", "ann", kind, body, 400, "invalid_purpose")
	kind, body = form("batch", strings.Repeat("x", 5<<10))
	s.refused("POST", "/v1/files", "ann", kind, body, 413, "file_too_large")
	s.refused("POST", "/v1/files", "ann", js, []byte("{}"), 400, "invalid_form")
	s.refused("DELETE", "/v1/files/"+file, "ann", "", nil, 409, "file_in_use")
	s.refused("POST", "/v1/batches", "ann", js, ask(file, ""), 429, "queue_full") // 3 + 3 > 5
	s.refused("POST", "/v1/batches", "ann", js, []byte("[]"), 400, "invalid_json")
	s.refused("POST", "/v1/batches", "ann", js, ask(file, `,"completion_window":"soon"`), 400, "invalid_completion_window")
	s.refused("POST", "/v1/batches", "ann", js, ask(file, `,"endpoint":"/v1/files"`), 400, "invalid_endpoint")
	s.refused("POST", "/v1/batches", "ann", js, ask(file, `,"metadata":{"a":"`+strings.Repeat("x", 600)+`"}`), 400, "invalid_metadata")
	s.refused("POST", "/v1/batches", "ann", js, ask(s.upload("ann", "\n"), ""), 400, "empty_file")
	s.upload("ann", "x\n")
	last := s.upload("ann", "y\n")
	kind, body = form("batch", "z\n")
	s.refused("POST", "/v1/files", "ann", kind, body, 429, "too_many_files")

	var seen []string
	after := ""
	for range 5 {
		l := s.must("GET", "/v1/files?limit=3&after="+after, "ann", nil)
		for _, f := range l["data"].([]any) {
			seen = append(seen, object(f.(map[string]any)).text("id"))
		}
		if after, _ = l["last_id"].(string); l["has_more"] != true {
			break
		}
	}
	if len(seen) != 4 || seen[0] != last || seen[3] != file {
		t.Errorf("the pages list %v, want 4 from %s to %s", seen, last, file)
	}
	s.refused("GET", "/v1/files?after=none", "ann", "", nil, 400, "invalid_after")
	s.refused("GET", "/v1/batches?limit=0", "ann", "", nil, 400, "invalid_limit")
	if d := s.must("DELETE", "/v1/files/"+last, "ann", nil); d["deleted"] != true {
		t.Errorf("deleted: %v", d)
	}
	s.refused("GET", "/v1/files/"+last, "ann", "", nil, 404, "file_not_found")
	got := s.must("POST", "/v1/batches/"+b+"/cancel", "ann", nil)
	if st := got.text("status"); st != "cancelling" && st != "cancelled" {
		t.Errorf("cancelled: %v", got)
	}
	if b := s.await("ann", b); b.text("status") != "cancelled" || b["completed_at"] != nil || b["cancelled_at"] == nil {
		t.Errorf("after the cancel: %v", b)
	}
}

// TestFailedBatch: lines are checked before any of them runs, and every mistake is
// told with its line.
func TestFailedBatch(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u, "batch: {enabled: true}\n")
	text := line("a", "x", 1) + "no json\n" + line("a", "x", 1) +
		strings.Replace(line("b", "x", 1), "POST", "GET", 1) + strings.Replace(line("c", "x", 1), "completions", "other", 1) +
		strings.Replace(line("d", "x", 1), `"model"`, `"stream":true,"model"`, 1) + `{"custom_id":"e","method":"POST","url":"/v1/chat/completions"}` + "\n"
	b := s.await("ann", s.batch("ann", s.upload("ann", text)).text("id"))
	if b.text("status") != "failed" || counts(b) != "0 0 0" {
		t.Fatalf("ended as %v", b)
	}
	var got []string
	for _, e := range b["errors"].(map[string]any)["data"].([]any) {
		m := e.(map[string]any)
		got = append(got, fmt.Sprint(m["line"], " ", m["code"]))
	}
	want := "2 invalid_json_line, 3 duplicate_custom_id, 4 invalid_method, 5 mismatched_url, 6 invalid_stream, 7 missing_required_parameter"
	if strings.Join(got, ", ") != want {
		t.Errorf("errors %v, want %s", got, want)
	}
	if n := len(u.texts()); n != 0 {
		t.Errorf("%d jobs ran", n)
	}
}

// TestAnswers: what passes is tried again, what does not is the result, and both are
// in the file that OpenAI would put them in.
func TestAnswers(t *testing.T) {
	u := newUpstream(t)
	tries := map[string]int{}
	u.answer = func(_ int, text string) (int, http.Header, string) { // under its lock
		u.mu.Lock()
		defer u.mu.Unlock()
		tries[text]++
		switch {
		case text == "busy" && tries[text] < 3:
			return 503, http.Header{"Retry-After-Ms": {"50"}}, `{"error":{"message":"later"}}`
		case text == "quota" && tries[text] < 2:
			return 429, http.Header{"Retry-After-Ms": {"50"}}, `{"error":{"message":"later"}}`
		case text == "wrong":
			return 400, nil, `{"error":{"message":"no"}}`
		case text == "broke":
			return 429, nil, `{"error":{"code":"insufficient_quota"}}`
		case text == "text":
			return 200, nil, `plain`
		case text == "large":
			return 200, nil, `"` + strings.Repeat("x", 3<<20) + `"`
		case text == "cut":
			return 200, http.Header{"Content-Length": {"100"}}, `{`
		}
		return 200, nil, ""
	}
	s := start(t, u, "batch: {enabled: true}\n")
	var in string
	for _, id := range []string{"busy", "quota", "wrong", "broke", "text", "fine", "large", "cut"} {
		in += line(id, id, 5)
	}
	b := s.await("ann", s.batch("ann", s.upload("ann", in)).text("id"))
	if b.text("status") != "completed" || counts(b) != "8 4 4" {
		t.Fatalf("ended as %v", b)
	}
	good, bad := s.results("ann", b.text("output_file_id")), s.results("ann", b.text("error_file_id"))
	for id, want := range map[string]float64{"busy": 200, "quota": 200, "text": 200, "fine": 200, "wrong": 400, "broke": 429} {
		from := good
		if want != 200 {
			from = bad
		}
		if response, _ := from[id]["response"].(map[string]any); response["status_code"] != want || response["request_id"] == "" {
			t.Errorf("%s: %v", id, from[id])
		}
	}
	if body := good["text"]["response"].(map[string]any)["body"]; body != "plain" {
		t.Errorf("a body that is no JSON became %v", body)
	}
	for id, code := range map[string]string{"large": "response_too_large", "cut": "upstream_broke"} {
		if e, _ := bad[id]["error"].(map[string]any); e["code"] != code || bad[id]["response"] != nil {
			t.Errorf("%s: %v", id, bad[id])
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if tries["cut"] < 2 || tries["large"] != 1 {
		t.Errorf("tries %v", tries)
	}
	if tries["busy"] != 3 || tries["quota"] != 2 || tries["wrong"] != 1 || tries["broke"] != 1 {
		t.Errorf("tries %v", tries)
	}
}

// TestExpired: a batch whose time is up tells so for every job that did not run.
func TestExpired(t *testing.T) {
	u := newUpstream(t)
	u.answer = func(_ int, text string) (int, http.Header, string) {
		if text == "a 0" {
			return 200, nil, ""
		}
		return 503, http.Header{"Retry-After-Ms": {"100"}}, `{}`
	}
	s := start(t, u, "batch: {enabled: true, default_deadline: 1s}\n")
	b := s.await("ann", s.batch("ann", s.upload("ann", lines("a", 20))).text("id"))
	if c := counts(b); b.text("status") != "expired" || c != "20 1 19" && c != "20 0 20" || b["expired_at"] == nil {
		t.Fatalf("ended as %v", b) // on a machine that stalls, none runs in time
	}
	for id, o := range s.results("ann", b.text("error_file_id")) {
		if e, _ := o["error"].(map[string]any); e["code"] != "batch_expired" || o["response"] != nil {
			t.Errorf("%s: %v", id, o)
		}
	}
}

// TestLeaving: a replica that leaves gives its jobs back, and another finishes them.
func TestLeaving(t *testing.T) {
	u := newUpstream(t)
	block := make(chan struct{})
	u.answer = func(n int, _ string) (int, http.Header, string) {
		if n <= 4 {
			<-block
		}
		return 200, nil, ""
	}
	embedded, err := replica.StartEmbedded()
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	open := func() *replica.Replica {
		text := strings.Replace(sections, "redis: {", fmt.Sprintf("redis: {mode: standalone, address: %q, ", embedded.Addr()), 1)
		text = strings.Replace(text, "server: {", "server: {drain: {grace: 200ms}, ", 1)
		cfg, err := config.Parse([]byte(strings.ReplaceAll(text, "UPSTREAM", u.URL)+"batch: {enabled: true, workers: 4, lease: 1h}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := replica.Start(context.Background(), cfg, replica.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := open()
	s := &site{t, first.URL(), first.AdminURL()}
	id := s.batch("ann", s.upload("ann", lines("a", 10))).text("id")
	poll(t, "four jobs run", func() bool { return len(u.texts()) == 4 })
	begin := time.Now()
	if err := first.Shutdown(context.Background()); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v to leave", took)
	}
	close(block)
	second := open()
	defer second.Shutdown(context.Background())
	s.url = second.URL()
	b := s.await("ann", id)
	if b.text("status") != "completed" || counts(b) != "10 10 0" {
		t.Errorf("ended as %v", b)
	}
	if got := s.results("ann", b.text("output_file_id")); len(got) != 10 {
		t.Errorf("%d results", len(got))
	}
}

// TestOneTenantsLimit: a tenant that is out of budget does not keep the workers from
// another's jobs.
func TestOneTenantsLimit(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u, `
batch: {enabled: true, workers: 2}
rate_limiting: {per_api_key: {overrides: {ann: {requests: {limit: 1, per: 10h}}}}}
`)
	stuck := s.batch("ann", s.upload("ann", lines("a", 9))).text("id")
	poll(t, "one of ann's has started", func() bool { return len(u.texts()) > 0 })
	if b := s.await("bob", s.batch("bob", s.upload("bob", lines("b", 20))).text("id")); counts(b) != "20 20 0" {
		t.Errorf("bob's: %v", b)
	}
	s.must("POST", "/v1/batches/"+stuck+"/cancel", "ann", nil)
	b := s.await("ann", stuck)
	if b.text("status") != "cancelled" || counts(b) != "9 1 8" {
		t.Errorf("ann's: %v", b)
	}
	for id, o := range s.results("ann", b.text("error_file_id")) {
		if e, _ := o["error"].(map[string]any); e["code"] != "batch_cancelled" {
			t.Errorf("%s: %v", id, o)
		}
	}
}

// TestFewWait: a replica with many workers claims few jobs that have to wait for the
// upstream, so none of them waits so long that it goes back and its tenant with it.
func TestFewWait(t *testing.T) {
	u := newUpstream(t)
	u.answer = func(int, string) (int, http.Header, string) {
		<-time.After(20 * time.Millisecond) // 64 of them are more than a job may wait
		return 200, nil, ""
	}
	s := start(t, u, "batch: {enabled: true, workers: 64}\n", "url: \"UPSTREAM\"", "url: \"UPSTREAM\", slots: 1, queue_depth: 1000")
	if b := s.await("ann", s.batch("ann", s.upload("ann", lines("a", 90))).text("id")); counts(b) != "90 90 0" {
		t.Errorf("ended as %v", b)
	}
	resp, err := http.Get(s.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	returned := regexp.MustCompile(`headway_batch_jobs_total\{state="returned"\} (\d+)`).FindStringSubmatch(string(page))
	if err != nil || returned == nil {
		t.Fatalf("no count of jobs that went back: %v", err)
	}
	// A machine that stands still for a second makes those go back that wait then.
	if n, _ := strconv.Atoi(returned[1]); n > 2*4 {
		t.Errorf("%d jobs went back", n)
	}
}
