package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/headway-limiter/headway/bench"
)

// gauges are what a replica tells of itself. No figure about fairness or limits
// is among them: those are the judge's.
type gauges struct {
	calls bench.Calls
	cpu   float64 // seconds, of the whole process
	rss   float64 // bytes, likewise
}

// scrape reads the /metrics of one replica.
func scrape(ctx context.Context, admin string) (g gauges, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/metrics", nil)
	if err != nil {
		return g, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return g, fmt.Errorf("stage: scrape: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return g, fmt.Errorf("stage: scrape %s: status %d", admin, resp.StatusCode)
	}
	return readGauges(resp.Body), nil
}

// readGauges reads the text format, as much of it as is needed: one sample a
// line, name{labels} value.
func readGauges(text io.Reader) (g gauges) {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if at < 0 {
			continue
		}
		series := lines.Text()[:at]
		v, err := strconv.ParseFloat(lines.Text()[at+1:], 64)
		if err != nil {
			continue
		}
		if strings.HasPrefix(series, "headway_store_calls_total{") {
			g.calls.Total += v
		}
		switch series {
		case `headway_store_calls_total{script="admit"}`:
			g.calls.Admit = v
		case `headway_store_calls_total{script="pool"}`:
			g.calls.Pool = v
		case "process_cpu_seconds_total":
			g.cpu = v
		case "process_resident_memory_bytes":
			g.rss = v
		}
	}
	return g
}

// state is what /readyz tells.
type state struct {
	Ready bool
	Fleet struct{ Members int }
}

// look reads the state of one replica; the zero state if it does not answer.
func look(ctx context.Context, admin string) (s state) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin+"/readyz", nil)
	if err != nil {
		return s
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s
	}
	defer resp.Body.Close()
	if json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&s) != nil {
		return state{}
	}
	return s
}
