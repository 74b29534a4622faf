package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-limiter/headway/gateway/cost"
)

// ratios returns how many estimates were compared, and the sum of their ratios.
func (r *rig) ratios(part, how string) (n uint64, sum float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "headway_gateway_estimate_ratio" && labels["part"] == part && labels["how"] == how {
				n, sum = m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
			}
		}
	}
	return n, sum
}

// TestAnswersTeach: estimates follow what the answers tell of their prompts, and only
// whole answers to prompts of text do.
func TestAnswersTeach(t *testing.T) {
	prompt := strings.Repeat("x", 4000) // 1000 tokens, until something is known
	body := `{"model":"m","prompt":"` + prompt + `","max_tokens":1}`
	used := `{"usage":{"prompt_tokens":2000,"completion_tokens":1}}`
	for _, c := range []struct {
		name, body, answer string
		status             int
		input              int64 // estimate of such a prompt afterwards, within 5 %
	}{
		{"usage", body, used, 200, 2000},
		{"usage of Anthropic's, cached", body, `{"usage":{"input_tokens":100,"cache_creation_input_tokens":400,"cache_read_input_tokens":1500,"output_tokens":1}}`, 200, 2000},
		{"no usage", body, `{}`, 200, 1000},
		{"an error", body, used, 500, 1000},
		{"an error inside", body, `{"error":{},"usage":{"prompt_tokens":2000}}`, 200, 1000},
		{"with a picture", strings.Replace(body, `"model"`, `"input":[{"image_url":"https://example.com/x"}],"model"`, 1), used, 200, 1000},
		{"absurd", body, `{"usage":{"prompt_tokens":9}}`, 200, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "", func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.status)
					fmt.Fprint(w, c.answer)
				})
				for range 50 {
					r.must(c.status, "/v1/completions", c.body, as("secret-a"))
				}
				q := cost.Query{Model: "m"}
				q.Text.Add([]byte(prompt))
				if got := r.opts.Cost.Estimate(q); got.Input < c.input*95/100 || got.Input > c.input*105/100 {
					t.Errorf("a prompt is now estimated as %+v, want %d", got, c.input)
				}
			})
		})
	}
}

// TestEstimatesAreCompared: the histogram tells how far estimates were off.
func TestEstimatesAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"usage":{"prompt_tokens":2,"completion_tokens":3}}`)
		})
		body := `{"model":"m","prompt":"12345678901234567890","max_tokens":15}`
		r.must(200, "/v1/completions", body, as("secret-a"))
		r.must(200, "/v1/completions", body, as("secret-b"))
		if n, sum := r.ratios("input", cost.Assumed); n != 2 || sum != 2*2.5 {
			t.Errorf("input: %d ratios, sum %v", n, sum)
		}
		if n, sum := r.ratios("total", cost.Assumed); n != 2 || sum != 2*4 {
			t.Errorf("total: %d ratios, sum %v", n, sum)
		}
		if n, _ := r.ratios("total", cost.None); n != 0 {
			t.Errorf("%d ratios of nothing", n)
		}
	})
}
