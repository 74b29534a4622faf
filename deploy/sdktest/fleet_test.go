package sdktest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// fetch is a GET that has to succeed.
func fetch(t *testing.T, address string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v: %s", address, res.Status, err, body)
	}
	return body
}

// TestPrometheusScrapesEverything asks Prometheus itself what it can reach.
func TestPrometheusScrapesEverything(t *testing.T) {
	query := os.Getenv("HEADWAY_PROMETHEUS") + "/api/v1/query?query=" + url.QueryEscape("sum by (job) (up)")
	want := map[string]string{"headway": "3", "haproxy": "1"}
	var got map[string]string
	retry := time.NewTicker(200 * time.Millisecond)
	defer retry.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-retry.C {
		var answer struct {
			Data struct {
				Result []struct {
					Metric map[string]string
					Value  [2]any
				}
			}
		}
		if err := json.Unmarshal(fetch(t, query), &answer); err != nil {
			t.Fatal(err)
		}
		got = map[string]string{}
		for _, r := range answer.Data.Result {
			got[r.Metric["job"]], _ = r.Value[1].(string)
		}
		if got["headway"] == want["headway"] && got["haproxy"] == want["haproxy"] {
			return
		}
	}
	t.Errorf("targets up: %v, want %v", got, want)
}

// TestMetricsAreWellFormed holds a live scrape against promtool's rules for
// names, units and help texts.
func TestMetricsAreWellFormed(t *testing.T) {
	c, _, ctx := client(t, "sk-local-small")
	for range 3 { // one for each replica: a family without a series is not shown
		if _, err := c.Chat.Completions.New(ctx, hello()); err != nil {
			t.Fatal(err)
		}
	}
	admin, _, _ := strings.Cut(os.Getenv("HEADWAY_ADMINS"), " ")
	scrape := string(fetch(t, "http://"+admin+"/metrics"))
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(scrape)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	for _, name := range []string{
		"rate_limit_requests_total", "rate_limit_fair_queue_depth", "rate_limit_fair_queue_tenants", "headway_fleet_members",
	} {
		if !strings.Contains(scrape, "\n"+name) {
			t.Errorf("the scrape has no %s", name)
		}
	}
}
