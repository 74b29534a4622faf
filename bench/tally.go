package bench

import (
	"maps"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Range and precision of recorded waits: 1 µs to 10 minutes, 1 %.
const (
	maxWaitMicros = int64(10 * time.Minute / time.Microsecond)
	waitDigits    = 2
	// maxReasons bounds the map of reasons, which come from answers.
	maxReasons = 32
)

// TenantStats is what one tenant has met. At every instant
// Offered = Outstanding + Admitted + all Refused + all Failed + Dropped + Aborted.
type TenantStats struct {
	Tenant      string
	Weight      float64
	Offered     int64 // arrivals, sent or not
	Outstanding int64
	Admitted    int64 // served to the last byte
	Dropped     int64 // not sent: too many were outstanding
	Aborted     int64 // cut off when the run ended
	Refused     map[string]int64
	Failed      map[string]int64
	Wait        WaitStats
}

// RefusedTotal is the refusals of every reason.
func (s TenantStats) RefusedTotal() int64 { return total(s.Refused) }

// FailedTotal is the failures of every reason.
func (s TenantStats) FailedTotal() int64 { return total(s.Failed) }

// WaitStats are the waits of admitted requests in milliseconds, see the
// package comment. They are zero when nothing was admitted.
type WaitStats struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90,omitempty"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// tally is the changing part of a TenantStats.
type tally struct {
	counts TenantStats             // without waits
	waits  *hdrhistogram.Histogram // nil: somebody else observes them
	late   *hdrhistogram.Histogram // likewise
}

func newTally() tally {
	return tally{
		counts: TenantStats{Refused: map[string]int64{}, Failed: map[string]int64{}},
	}
}

func newWaits() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxWaitMicros, waitDigits) }

// offer counts an arrival and reports whether it may be sent.
func (t *tenant) offer(maxOutstanding int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.stats.counts
	c.Offered++
	if c.Outstanding >= int64(maxOutstanding) {
		c.Dropped++
		return false
	}
	c.Outstanding++
	return true
}

// record counts how a request that was sent has ended.
func (t *tenant) record(r result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.stats.counts
	c.Outstanding--
	if h := t.stats.late; h != nil {
		h.RecordValue(min(r.late.Microseconds(), maxWaitMicros))
	}
	switch r.kind {
	case Admitted:
		c.Admitted++
		if h := t.stats.waits; h != nil {
			// Waits beyond the range are recorded at its end, not lost.
			h.RecordValue(min(max(r.wait.Microseconds(), 1), maxWaitMicros))
		}
	case Refused:
		count(c.Refused, r.reason)
	case Failed:
		count(c.Failed, r.reason)
	case Aborted:
		c.Aborted++
	}
}

func (t *tenant) snapshot() TenantStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats.counts
	s.Tenant, s.Weight = t.load.Tenant, t.load.Weight
	s.Refused, s.Failed = maps.Clone(s.Refused), maps.Clone(s.Failed)
	h := t.stats.waits
	if h != nil && h.TotalCount() > 0 {
		ms := func(micros int64) float64 { return float64(micros) / 1000 }
		s.Wait = WaitStats{
			P50: ms(h.ValueAtPercentile(50)), P90: ms(h.ValueAtPercentile(90)),
			P99: ms(h.ValueAtPercentile(99)), Max: ms(h.Max()),
		}
	}
	return s
}

// Lateness is how much later than due the driver has sent requests so far, in
// milliseconds: the 99th percentile and the most. It is zero where somebody else
// observes them.
func (d *Driver) Lateness() (p99, most float64) {
	all := newWaits()
	for _, t := range d.tenants {
		t.mu.Lock()
		if t.stats.late != nil {
			all.Merge(t.stats.late)
		}
		t.mu.Unlock()
	}
	if all.TotalCount() == 0 {
		return 0, 0
	}
	return float64(all.ValueAtPercentile(99)) / 1000, float64(all.Max()) / 1000
}

// count adds one to reason, or to "other" when there are too many reasons.
func count(m map[string]int64, reason string) {
	if _, known := m[reason]; !known && len(m) >= maxReasons {
		reason = "other"
	}
	m[reason]++
}

func total(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}
