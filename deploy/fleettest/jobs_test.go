package fleettest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// batchCall asks a replica's API for files and batches, and reads the answer.
func batchCall(t *testing.T, r *replica, method, path, kind string, body []byte) (string, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, r.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", kind)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %s (%v)", method, path, res.Status, text, err)
	}
	object := map[string]any{}
	_ = json.Unmarshal(text, &object) // a file of results is none
	return string(text), object
}

// startBatch uploads n jobs and makes a batch of them.
func startBatch(t *testing.T, r *replica, n int) (id string) {
	t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	_ = w.WriteField("purpose", "batch")
	part, _ := w.CreateFormFile("file", "in.jsonl")
	for i := range n {
		fmt.Fprintf(part, `{"custom_id":"job-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"job-%d"}]}}`+"\n", i, i)
	}
	w.Close()
	_, file := batchCall(t, r, "POST", "/v1/files", w.FormDataContentType(), form.Bytes())
	_, b := batchCall(t, r, "POST", "/v1/batches", "application/json", fmt.Appendf(nil,
		`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file["id"]))
	return b["id"].(string)
}

// TestJobsSurviveKilledReplicas: two of three replicas are killed while they run the
// jobs of a batch, one after the other, and one more comes. Every job has exactly one
// result, and hardly more run twice than the dead had claimed.
func TestJobsSurviveKilledReplicas(t *testing.T) {
	const jobs, workers = 200, 4
	var mu sync.Mutex
	starts := map[string]int{}
	total := 0
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Messages []struct{ Content string } }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			return // it was killed while it sent
		}
		mu.Lock()
		starts[in.Messages[0].Content]++
		total++
		mu.Unlock()
		select {
		case <-time.After(40 * time.Millisecond):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"content":%q}}],"usage":{"total_tokens":5}}`, in.Messages[0].Content)
	}))
	defer provider.Close()
	started := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return total >= n
		}
	}
	redis := redisproc.Start(t)
	rest := fmt.Sprintf(`
redis: {mode: standalone, address: "REDIS", timeout: 2s}
batch: {enabled: true, workers: %d, lease: 3s}
`, workers)
	fleet := startFleet(t, 3, redis.Addr(), provider.URL, rest)
	id := startBatch(t, fleet[0], jobs)
	eventually(t, startTimeout, "a quarter has started", started(jobs/4))
	fleet[0].kill() // the one that took the batch in
	eventually(t, startTimeout, "half has started", started(jobs/2))
	fleet[1].kill()
	late := startReplica(t, configuration(redis.Addr(), provider.URL, fleet[2].gossip, rest))
	var b map[string]any
	eventually(t, 2*startTimeout, "the batch is completed", func() bool {
		_, b = batchCall(t, late, "GET", "/v1/batches/"+id, "", nil)
		return b["status"] == "completed"
	})
	text, _ := batchCall(t, late, "GET", fmt.Sprintf("/v1/files/%v/content", b["output_file_id"]), "", nil)
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		var out struct {
			CustomID string `json:"custom_id"`
			Response struct {
				StatusCode int             `json:"status_code"`
				Body       json.RawMessage `json:"body"`
			}
		}
		if err := json.Unmarshal([]byte(line), &out); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if seen[out.CustomID] || out.Response.StatusCode != http.StatusOK || !bytes.Contains(out.Response.Body, []byte(`"`+out.CustomID+`"`)) {
			t.Errorf("a result twice, or not its own: %s", line)
		}
		seen[out.CustomID] = true
	}
	again := 0
	mu.Lock()
	defer mu.Unlock()
	for i := range jobs {
		name := fmt.Sprintf("job-%d", i)
		if !seen[name] || starts[name] == 0 {
			t.Errorf("%s has no result; it was started %d times", name, starts[name])
		}
		again += starts[name] - 1
	}
	t.Logf("%d jobs, %d results, %d started again", jobs, len(seen), again)
	// The dead had claimed 2*workers; more only if a lease ends on a machine that stalls.
	if len(seen) != jobs || again > 6*workers {
		t.Errorf("%d results, want %d; %d started again, want at most %d", len(seen), jobs, again, 6*workers)
	}
}
