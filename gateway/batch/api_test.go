package batch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
)

// upstream counts what reaches it, by the text of the last message.
type upstream struct {
	*httptest.Server
	answer func(n int, text string) (status int, header http.Header, body string) // nil: 200

	mu   sync.Mutex
	seen []string
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Messages []struct{ Content string }
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		text := in.Messages[len(in.Messages)-1].Content
		u.mu.Lock()
		u.seen = append(u.seen, text)
		n := len(u.seen)
		u.mu.Unlock()
		status, header, body := http.StatusOK, http.Header{}, ""
		if u.answer != nil {
			status, header, body = u.answer(n, text)
		}
		if body == "" {
			body = fmt.Sprintf(`{"id":"c","object":"chat.completion","choices":[{"message":{"content":%q}}],"usage":{"total_tokens":7}}`, "re: "+text)
		}
		for name, values := range header {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(u.Close)
	return u
}

// texts returns what has reached the upstream, in order.
func (u *upstream) texts() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.seen...)
}

// site is one replica with two tenants, ann and bob, whose keys are their names.
type site struct {
	t          *testing.T
	url, admin string
}

const sections = `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {timeout: 2s}
keys: [{id: ann, key: ann, user: ann}, {id: bob, key: bob, user: bob}]
upstreams: [{name: up, url: "UPSTREAM"}]
routes: [{path: /v1/*, upstream: up}]
`

// start starts a replica; more are further sections, changes what to put in place of
// parts of sections.
func start(t *testing.T, u *upstream, more string, changes ...string) *site {
	t.Helper()
	text := strings.NewReplacer(changes...).Replace(sections) + more
	cfg, err := config.Parse([]byte(strings.ReplaceAll(text, "UPSTREAM", u.URL)), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := replica.Start(context.Background(), cfg, replica.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return &site{t, r.URL(), r.AdminURL()}
}

// object is any JSON object.
type object map[string]any

func (o object) text(name string) string { s, _ := o[name].(string); return s }

// call sends a request and returns its status and body. It retries as it is told to
// when a busy machine keeps the store from answering within its second.
func (s *site) call(method, path, key, kind string, body []byte) (status int, text string) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; <-time.After(50 * time.Millisecond) {
		status, text = s.once(method, path, key, kind, body)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "store_unavailable") || time.Now().After(end) {
			return status, text
		}
	}
}

// once is call without retries.
func (s *site) once(method, path, key, kind string, body []byte) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// must is a call that is answered with 200 and an object.
func (s *site) must(method, path, key string, body any) object {
	s.t.Helper()
	var raw []byte
	if body != nil {
		raw, _ = json.Marshal(body)
	}
	status, text := s.call(method, path, key, "application/json", raw)
	var o object
	if err := json.Unmarshal([]byte(text), &o); status != http.StatusOK || err != nil {
		s.t.Fatalf("%s %s: %d %s (%v)", method, path, status, text, err)
	}
	return o
}

// form is the body of an upload.
func form(purpose, content string) (kind string, body []byte) {
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	part, _ := w.CreateFormFile("file", "in.jsonl") // before the purpose, as openai-go sends it
	_, _ = io.WriteString(part, content)
	_ = w.WriteField("purpose", purpose)
	w.Close()
	return w.FormDataContentType(), out.Bytes()
}

// upload keeps a file and returns its id.
func (s *site) upload(key, content string) string {
	s.t.Helper()
	kind, body := form("batch", content)
	status, text := s.call("POST", "/v1/files", key, kind, body)
	var o object
	if err := json.Unmarshal([]byte(text), &o); status != http.StatusOK || err != nil {
		s.t.Fatalf("upload: %d %s", status, text)
	}
	return o.text("id")
}

// line is one job that says text; tokens bounds its completion.
func line(id, text string, tokens int) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":%q}]}}`+"\n", id, tokens, text)
}

// lines is n jobs of a name.
func lines(name string, n int) string {
	var out strings.Builder
	for i := range n {
		out.WriteString(line(fmt.Sprintf("%s-%d", name, i), fmt.Sprintf("%s %d", name, i), 10))
	}
	return out.String()
}

// batch makes a batch of a file.
func (s *site) batch(key, file string) object {
	s.t.Helper()
	return s.must("POST", "/v1/batches", key, object{"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"})
}

// await polls until a batch has ended.
func (s *site) await(key, id string) object {
	s.t.Helper()
	var b object
	poll(s.t, "the batch ends", func() bool {
		b = s.must("GET", "/v1/batches/"+id, key, nil)
		switch b.text("status") {
		case "completed", "failed", "expired", "cancelled":
			return true
		}
		return false
	})
	return b
}

// poll asks until ok says so, for two minutes at most: under the race detector a script
// takes a busy machine a while.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); {
		if ok() {
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatalf("%s: not within 2 min", what)
}

// results reads a file of results by custom_id, and complains of any twice.
func (s *site) results(key, file string) map[string]object {
	s.t.Helper()
	status, text := s.call("GET", "/v1/files/"+file+"/content", key, "", nil)
	if status != http.StatusOK {
		s.t.Fatalf("content: %d %s", status, text)
	}
	out := map[string]object{}
	for l := range strings.Lines(text) {
		var o object
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			s.t.Fatalf("line %q: %v", l, err)
		}
		if out[o.text("custom_id")] != nil {
			s.t.Errorf("two results of %s", o.text("custom_id"))
		}
		out[o.text("custom_id")] = o
	}
	return out
}

// counts writes a batch's counts: total, completed, failed.
func counts(b object) string {
	c := b["request_counts"].(map[string]any)
	return fmt.Sprint(c["total"], c["completed"], c["failed"])
}

func TestBatch(t *testing.T) {
	u := newUpstream(t)
	s := start(t, u, "batch: {enabled: true}\n")
	file := s.upload("ann", lines("a", 25))
	b := s.batch("ann", file)
	if b.text("status") != "validating" && b.text("status") != "in_progress" || b.text("object") != "batch" {
		t.Errorf("a new batch: %v", b)
	}
	b = s.await("ann", b.text("id"))
	if b.text("status") != "completed" || counts(b) != "25 25 0" || b["error_file_id"] != nil {
		t.Fatalf("it ended as %v", b)
	}
	got := s.results("ann", b.text("output_file_id"))
	for i := range 25 {
		o := got[fmt.Sprintf("a-%d", i)]
		response, _ := o["response"].(map[string]any)
		if o == nil || response["status_code"] != 200.0 || o["error"] != nil ||
			!strings.Contains(fmt.Sprint(response["body"]), fmt.Sprintf("re: a %d", i)) {
			t.Fatalf("result %d: %v", i, o)
		}
	}
	if n := len(u.texts()); n != 25 {
		t.Errorf("%d requests reached the upstream", n)
	}
}
