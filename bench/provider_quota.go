package bench

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// QuotaConfig is what a provider enforces by itself. The zero value enforces
// nothing and states nothing.
type QuotaConfig struct {
	Requests, Tokens QuotaRate
	// Fixed renews the whole quota at fixed instants, every Per since the first
	// request. Otherwise it refills continuously.
	Fixed bool
	// Dialect names how levels are written into headers, a key of Dialects;
	// empty means "openai".
	Dialect string
}

// QuotaRate allows Limit per Per, all of it at once if unused. A Limit of 0
// means that there is no such quota.
type QuotaRate struct {
	Limit int64
	Per   time.Duration // > 0 when Limit is
}

// ParseQuotaRate reads "LIMIT/PERIOD", as in "600/1m".
func ParseQuotaRate(text string) (QuotaRate, error) {
	amount, period, _ := strings.Cut(text, "/")
	limit, err := strconv.ParseInt(amount, 10, 64)
	per, err2 := time.ParseDuration(period)
	if err != nil || err2 != nil || limit <= 0 || per <= 0 {
		return QuotaRate{}, fmt.Errorf("bench: quota %q is not LIMIT/PERIOD, as in 600/1m", text)
	}
	return QuotaRate{Limit: limit, Per: per}, nil
}

// quota enforces a QuotaConfig.
type quota struct {
	dialect Dialect

	mu               sync.Mutex
	requests, tokens *meter // nil: no such quota
}

func newQuota(cfg QuotaConfig) (*quota, error) {
	name := cfg.Dialect
	if name == "" {
		name = "openai"
	}
	dialect, ok := Dialects[name]
	if !ok {
		return nil, fmt.Errorf("bench: quota dialect %q is not known", name)
	}
	for unit, r := range map[string]QuotaRate{"requests": cfg.Requests, "tokens": cfg.Tokens} {
		if r.Limit < 0 || r.Limit > 0 && r.Per <= 0 {
			return nil, fmt.Errorf("bench: quota of %d %s per %v: both must be positive", r.Limit, unit, r.Per)
		}
	}
	return &quota{dialect: dialect, requests: newMeter(cfg.Requests, cfg.Fixed), tokens: newMeter(cfg.Tokens, cfg.Fixed)}, nil
}

// take charges one request of cost tokens and states the levels in h. A wait
// above zero means that nothing was charged and says until when and for which
// unit; it is the longer of the two. left is what is left of the requests, as a part
// of their limit.
func (q *quota) take(now time.Time, h http.Header, cost int64) (wait time.Duration, unit string, left float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait, unit = q.requests.wait(now, 1), "requests"
	if w := q.tokens.wait(now, cost); w > wait {
		wait, unit = w, "tokens"
	}
	if wait == 0 {
		q.requests.charge(1)
		q.tokens.charge(cost)
	}
	q.dialect(h, now, q.requests.standing(now), q.tokens.standing(now))
	return wait, unit, q.requests.part()
}

// writeQuotaError refuses a request past the quota.
func writeQuotaError(w http.ResponseWriter, wait time.Duration, unit string) {
	w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10))
	w.Header().Set("Retry-After-Ms", strconv.FormatInt(int64(math.Ceil(float64(wait)/1e6)), 10))
	writeError(w, http.StatusTooManyRequests, unit, "rate_limit_exceeded",
		fmt.Sprintf("Rate limit reached for %s. Please try again in %v.", unit, wait.Round(time.Millisecond)))
}

// meter is one quota. A nil meter lets everything through. The owner's mutex
// guards it.
type meter struct {
	QuotaRate
	fixed bool
	left  float64
	at    time.Time // of left; with fixed the begin of the window
}

func newMeter(r QuotaRate, fixed bool) *meter {
	if r.Limit == 0 {
		return nil
	}
	return &meter{QuotaRate: r, fixed: fixed, left: float64(r.Limit)}
}

// wait refills up to now and returns how long until cost is covered, 0 if it
// is. A cost above the limit waits for a full quota and is then let into debt.
func (m *meter) wait(now time.Time, cost int64) time.Duration {
	if m == nil {
		return 0
	}
	m.refill(now)
	missing := float64(min(cost, m.Limit)) - m.left
	switch {
	case missing <= 1e-9: // a full refill computed in floating point is full
		return 0
	case m.fixed:
		return max(m.at.Add(m.Per).Sub(now), 1)
	}
	return max(time.Duration(missing/float64(m.Limit)*float64(m.Per)), 1)
}

func (m *meter) refill(now time.Time) {
	switch {
	case m.at.IsZero():
		m.at = now
	case m.fixed:
		if windows := now.Sub(m.at) / m.Per; windows > 0 {
			m.at, m.left = m.at.Add(windows*m.Per), float64(m.Limit)
		}
	default:
		gained := float64(m.Limit) * float64(now.Sub(m.at)) / float64(m.Per)
		m.at, m.left = now, min(m.left+gained, float64(m.Limit))
	}
}

func (m *meter) charge(cost int64) {
	if m != nil {
		m.left -= float64(cost)
	}
}

// part is what is left as a part of the limit.
func (m *meter) part() float64 {
	if m == nil {
		return 1
	}
	return m.left / float64(m.Limit)
}

// standing is the level as of the last refill, which was now.
func (m *meter) standing(now time.Time) *QuotaLevel {
	if m == nil {
		return nil
	}
	reset := time.Duration((float64(m.Limit) - m.left) / float64(m.Limit) * float64(m.Per))
	if m.fixed {
		reset = m.at.Add(m.Per).Sub(now)
	}
	return &QuotaLevel{QuotaRate: m.QuotaRate, Remaining: max(int64(math.Floor(m.left)), 0), Reset: reset}
}
