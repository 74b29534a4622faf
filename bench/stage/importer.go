package stage

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// Paths that batch work can take.
const (
	PathHeld    = "held"    // a request per job, held on its connection
	PathDurable = "durable" // files and batches, which outlive connections
)

// ImporterOptions say how the importer is run.
type ImporterOptions struct {
	Path     string // PathHeld or PathDurable
	Replicas int    // > 0
	Quick    bool   // a tenth of the jobs
	Seed     uint64
	// Redis is the host:port of a server; empty: an embedded one. Headway is the
	// program to start replicas with; empty: replicas in this process.
	Redis, Headway string
	Logs           io.Writer // errors of replicas in this process
}

const (
	importerReserve = 0.2 // the default of replicas
	// importerWorkers run the durable jobs of each replica: more than the quota lets
	// run at once, so that it is the quota that decides.
	importerWorkers = 32
	// heldAtOnce is how many requests of one tenant are held at once.
	heldAtOnce = 500
	// heldGap is between the first of them, of all tenants: nobody opens all connections
	// at an instant.
	heldGap = 2 * time.Millisecond
	// jobTokens is the size of jobs where it does not matter.
	jobTokens = 100
	// pollBatch is the pause between two looks at a batch.
	pollBatch = 200 * time.Millisecond
)

// importerQuota is what the provider gives, continuously.
var importerQuota = bench.QuotaRate{Limit: 600, Per: 6 * time.Second}

// RunImporter has one tenant bring very many jobs to a fleet that small tenants and
// interactive requests use, too.
func RunImporter(ctx context.Context, o ImporterOptions) (bench.Importer, error) {
	return o.run(ctx, o.load())
}

// run runs so much load.
func (o ImporterOptions) run(ctx context.Context, load bench.ImporterLoad) (r bench.Importer, err error) {
	quota := bench.QuotaConfig{Requests: importerQuota}
	// Answers take long enough that a few milliseconds of this machine's do not count.
	provider, err := bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{
		Seed: o.Seed, Latency: bench.Uniform(0.15, 0.25), Tokens: bench.Constant(1e5), Quota: quota, // each request's bound cuts it
	})
	if err != nil {
		return r, err
	}
	defer provider.Close()
	s := setting{
		run: strings.ToLower(rand.Text()[:8]), scope: "replica", provider: provider.URL,
		limit:  bench.LimitReport{Dimension: "model", Requests: 1e6, PerS: 1, Burst: 1e6}, // the provider's quota decides
		places: 1, immediate: true, timeout: storeTimeout, throttled: true,
	}
	if o.Path == PathDurable {
		s.workers = importerWorkers
	}
	weights := bench.ImporterTenants(load.Small)
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		s.tenants = append(s.tenants, bench.Tenant{Load: bench.Load{Tenant: name, Weight: weights[name]}})
	}
	f, end, err := startFleet(ctx, s, o.Replicas, o.Redis, o.Headway, o.Logs)
	defer end()
	if err != nil {
		return r, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: 20_000, MaxIdleConnsPerHost: 10_000}}
	defer client.CloseIdleConnections()
	d := &desk{setting: s, client: client, targets: f.targets()}
	load.Ask, load.Submit = d.ask, d.hold
	if o.Path == PathDurable {
		load.Submit = d.hand
	}
	r, err = load.Run(ctx, provider.Provider)
	return r, errors.Join(err, ctx.Err())
}

// load is how much there is to do.
func (o ImporterOptions) load() bench.ImporterLoad {
	l := bench.ImporterLoad{
		Path: o.Path, Replicas: o.Replicas, Quota: importerQuota, Reserve: importerReserve, Seed: o.Seed, JobTokens: jobTokens, SettleWithin: startTimeout,
		Backlog: 500, Thousand: 150, Weighted: 900, Jobs: 10_000, Small: 20, Each: 30, Alone: 30 * time.Second,
	}
	if o.Quick {
		l.Backlog, l.Thousand, l.Weighted, l.Jobs, l.Each, l.Alone = 200, 80, 360, 1000, 8, 8*time.Second
	}
	return l
}

// desk is where work is handed in.
type desk struct {
	setting
	client  *http.Client
	targets []string // of replicas
	turn    atomic.Int64
	opening sync.Mutex // held while one more connection is opened
}

// next is a replica, each in its turn.
func (d *desk) next() string { return d.targets[int(d.turn.Add(1))%len(d.targets)] }

// bearer is the credential of a tenant.
func (d *desk) bearer(tenant string) string {
	return "Bearer " + d.key(slices.IndexFunc(d.tenants, func(t bench.Tenant) bool { return t.Tenant == tenant }))
}

// promptTokens is what the provider counts of body's messages.
const promptTokens = 9

// body is a request that costs so many tokens.
func (d *desk) body(tenant string, tokens int64) []byte {
	return fmt.Appendf(nil, `{"model":%q,"user":%q,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`,
		d.model(), tenant, tokens-promptTokens)
}

// ask sends an interactive request.
func (d *desk) ask(ctx context.Context, replica int) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.targets[replica]+"/v1/chat/completions", bytes.NewReader(d.body(bench.InteractiveTenant, jobTokens)))
	if err != nil {
		return 0
	}
	status, _ := d.send(r, bench.InteractiveTenant, "application/json")
	return status
}

// Clients try again, as SDKs do, when nobody could be reached or a store was out.
const (
	tries    = 6
	tryAgain = 250 * time.Millisecond
)

// insist sends a batch request until it has an answer that stands.
func (d *desk) insist(ctx context.Context, method, url, tenant, kind string, body []byte) (status int, answer []byte) {
	for range tries {
		r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return 0, nil
		}
		r.Header.Set("X-Headway-Priority", "batch")
		if status, answer = d.send(r, tenant, kind); status != 0 && status != http.StatusServiceUnavailable {
			return status, answer
		}
		if pause(ctx, tryAgain); ctx.Err() != nil {
			return 0, nil
		}
	}
	return status, answer
}

// send sends a request in the name of a tenant, and reads the whole answer.
func (d *desk) send(r *http.Request, tenant, kind string) (status int, body []byte) {
	r.Header.Set("Authorization", d.bearer(tenant))
	r.Header.Set("Content-Type", kind)
	resp, err := d.client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, body
}

// hold sends a request for each job, some at once, and implements Submit.
func (d *desk) hold(ctx context.Context, w bench.Work, handed func()) (done, doubled int, err error) {
	var all sync.WaitGroup
	var served, sent atomic.Int64
	jobs := make(chan struct{})
	atOnce := min(w.Jobs, heldAtOnce)
	for range atOnce {
		all.Go(func() {
			for range jobs {
				to := d.targets[0]
				if !w.Here {
					to = d.next()
				}
				if sent.Add(1) == int64(atOnce) {
					handed()
				}
				if status, _ := d.insist(ctx, http.MethodPost, to+"/v1/chat/completions", w.Tenant, "application/json", d.body(w.Tenant, w.Tokens)); status == http.StatusOK {
					served.Add(1)
				}
			}
		})
	}
	for i := range w.Jobs {
		if i < atOnce {
			d.opening.Lock()
			pause(ctx, heldGap)
			d.opening.Unlock()
		}
		select {
		case jobs <- struct{}{}:
		case <-ctx.Done():
		}
	}
	close(jobs)
	all.Wait()
	return int(served.Load()), 0, ctx.Err()
}

// hand uploads the jobs, makes a batch of them, waits for its end and counts the
// results. It implements Submit.
func (d *desk) hand(ctx context.Context, w bench.Work, handed func()) (done, doubled int, err error) {
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	_ = m.WriteField("purpose", "batch") // a buffer takes everything
	part, _ := m.CreateFormFile("file", "jobs.jsonl")
	body := d.body(w.Tenant, w.Tokens)
	for i := range w.Jobs {
		fmt.Fprintf(part, `{"custom_id":"job-%d","method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", i, body)
	}
	m.Close()
	var file, batch struct {
		ID     string `json:"id"`
		Status string `json:"status"`
		Output string `json:"output_file_id"`
	}
	if err := d.call(ctx, http.MethodPost, "/v1/files", w.Tenant, m.FormDataContentType(), form.Bytes(), &file); err != nil {
		return 0, 0, err
	}
	text := fmt.Appendf(nil, `{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file.ID)
	if err := d.call(ctx, http.MethodPost, "/v1/batches", w.Tenant, "application/json", text, &batch); err != nil {
		return 0, 0, err
	}
	handed()
	for batch.Status != "completed" {
		if pause(ctx, pollBatch); ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		if err := d.call(ctx, http.MethodGet, "/v1/batches/"+batch.ID, w.Tenant, "", nil, &batch); err != nil {
			return 0, 0, err
		}
		if slices.Contains([]string{"failed", "expired", "cancelled"}, batch.Status) {
			return 0, 0, fmt.Errorf("stage: batch %s is %s", batch.ID, batch.Status)
		}
	}
	var results bytes.Buffer
	if err := d.call(ctx, http.MethodGet, "/v1/files/"+batch.Output+"/content", w.Tenant, "", nil, &results); err != nil {
		return 0, 0, err
	}
	return count(&results)
}

// call asks some replica and reads the answer into out: a buffer, or a struct from
// JSON.
func (d *desk) call(ctx context.Context, method, path, tenant, kind string, body []byte, out any) error {
	status, text := d.insist(ctx, method, d.next()+path, tenant, kind, body)
	if status != http.StatusOK {
		return fmt.Errorf("stage: %s %s: status %d: %.200s", method, path, status, text)
	}
	if b, ok := out.(*bytes.Buffer); ok {
		_, err := b.Write(text)
		return err
	}
	return json.Unmarshal(text, out)
}

// count counts the jobs with a result, and the results too many.
func count(results io.Reader) (done, doubled int, err error) {
	seen := map[string]bool{}
	lines := bufio.NewScanner(results)
	for lines.Scan() {
		var line struct {
			ID string `json:"custom_id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return len(seen), doubled, fmt.Errorf("stage: a result is no JSON: %w", err)
		}
		if seen[line.ID] {
			doubled++
		}
		seen[line.ID] = true
	}
	return len(seen), doubled, lines.Err()
}
