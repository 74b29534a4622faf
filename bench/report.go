package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a run comes to. Its JSON keys are stable.
type Report struct {
	Replicas  int            `json:"replicas"`
	Members   []int          `json:"members"` // alive replicas as each replica sees them
	Redis     string         `json:"redis"`   // "embedded" or host:port
	DurationS float64        `json:"duration_s"`
	Limit     LimitReport    `json:"limit"`
	Judge     JudgeReport    `json:"judge"`
	Tenants   []TenantReport `json:"tenants"`
	// Jain is the index over received/entitled of all tenants.
	Jain               float64 `json:"jain"`
	RedisCallsPerGrant float64 `json:"redis_calls_per_grant"`
	// StoreTimeouts counts calls of the store that had no answer in time, Unavailable
	// requests that were refused because it could not be asked.
	StoreTimeouts int64 `json:"store_timeouts"`
	Unavailable   int64 `json:"unavailable"`
	// How much later than due requests were really sent.
	DriverLateP99MS float64 `json:"driver_late_p99_ms"`
	DriverLateMaxMS float64 `json:"driver_late_max_ms"`
}

// Warning says that the driver was too late for times of the run to mean much; it is
// empty if it was not.
func (r *Report) Warning() string {
	if r.DriverLateP99MS <= lateBound {
		return ""
	}
	return fmt.Sprintf("the driver was late by %s (p99): beyond %d ms, times say more about the machine than about the fleet",
		Millis(r.DriverLateP99MS), lateBound)
}

// LimitReport is the shared limit that is judged.
type LimitReport struct {
	Dimension string  `json:"dimension"`
	Requests  int64   `json:"requests"` // per PerS
	PerS      float64 `json:"per_s"`
	Burst     int64   `json:"burst"`
}

// Rate is the limit in requests per second.
func (l LimitReport) Rate() float64 { return float64(l.Requests) / l.PerS }

// JudgeReport compares what the provider saw with what the limit allows.
type JudgeReport struct {
	Admitted int64   `json:"admitted"` // requests that reached the provider
	Allowed  float64 `json:"allowed"`  // burst + rate × time
	// OverAdmissionRatio is Admitted/Allowed, rounded up to four digits: it is
	// 1.0000 or less exactly when no request too many was let through.
	OverAdmissionRatio float64 `json:"over_admission_ratio"`
	// PeakInflight is the most requests of one tenant that ever ran at once,
	// InflightCap the most that may, 0 for no cap.
	PeakInflight int64 `json:"peak_inflight"`
	InflightCap  int64 `json:"inflight_cap"`
}

// OK reports whether both bounds were kept.
func (j JudgeReport) OK() bool {
	return j.OverAdmissionRatio <= 1 && (j.InflightCap == 0 || j.PeakInflight <= j.InflightCap)
}

// TenantReport is one tenant's part. Shares are fractions of all that was
// entitled or received.
type TenantReport struct {
	Name          string    `json:"name"`
	Weight        float64   `json:"weight"`
	EntitledShare float64   `json:"entitled_share"`
	ReceivedShare float64   `json:"received_share"`
	Admitted      int64     `json:"admitted"` // requests that reached the provider
	Refused       int64     `json:"refused"`
	WaitMS        WaitStats `json:"wait_ms"`
}

// Judge holds what a ledger saw against a limit. begin is an instant before the
// first request was sent, and the time that the limit allows for runs from it
// to the last arrival. tenantCap is the in-flight cap of each tenant.
func Judge(s Snapshot, l LimitReport, begin time.Time, tenantCap int64) JudgeReport {
	t := max(s.Last().Sub(begin).Seconds(), 0)
	j := JudgeReport{Admitted: s.Total.Starts, Allowed: float64(l.Burst) + l.Rate()*t, InflightCap: tenantCap}
	if j.Allowed > 0 {
		j.OverAdmissionRatio = math.Ceil(float64(j.Admitted)/j.Allowed*1e4) / 1e4
	}
	j.Allowed = round(j.Allowed, 2)
	for _, a := range s.Tenants {
		j.PeakInflight = max(j.PeakInflight, a.Peak)
	}
	return j
}

// Share fills the tenants, the index and Unavailable of r: what each was entitled to given
// what it offered (by stats), and what it received (by the ledger). What is
// divided is what was let through, not what might have been: a fleet that
// leaves capacity unused shows that in the judge's ratio, and how fairly it
// divides the rest is another question.
func (r *Report) Share(stats []TenantStats, s Snapshot) {
	n := len(stats)
	demand, weight, received := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, t := range stats {
		demand[i], weight[i] = float64(t.Offered), t.Weight
		received[i] = float64(s.Tenants[t.Tenant].Starts)
	}
	entitled := Entitled(float64(s.Total.Starts), demand, weight)
	entitledShare, receivedShare := Fractions(entitled), Fractions(received)
	r.Jain = round(Jain(Satisfaction(received, entitled)), 4)
	r.Tenants = make([]TenantReport, n)
	r.Unavailable = 0
	for i, t := range stats {
		r.Unavailable += t.Refused[reasonUnavailable]
		r.Tenants[i] = TenantReport{
			Name: t.Tenant, Weight: t.Weight, Admitted: s.Tenants[t.Tenant].Starts, Refused: t.RefusedTotal(),
			EntitledShare: round(entitledShare[i], 4), ReceivedShare: round(receivedShare[i], 4),
			WaitMS: WaitStats{P50: t.Wait.P50, P99: t.Wait.P99, Max: t.Wait.Max},
		}
	}
}

// WriteJSON writes the report as one line.
func (r *Report) WriteJSON(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return fmt.Errorf("bench: write report: %w", err)
	}
	return nil
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d replicas see %s members, redis %s, %.1f s\n",
		r.Replicas, strings.Trim(fmt.Sprint(r.Members), "[]"), r.Redis, r.DurationS)
	fmt.Fprintf(&b, "limit    %d requests per %gs, burst %d, shared per %s\n", r.Limit.Requests, r.Limit.PerS, r.Limit.Burst, r.Limit.Dimension)
	fmt.Fprintf(&b, "judge    %d admitted of %.1f allowed: ratio %.4f%s\n",
		r.Judge.Admitted, r.Judge.Allowed, r.Judge.OverAdmissionRatio, verdict(r.Judge.OverAdmissionRatio <= 1))
	if r.Judge.InflightCap > 0 {
		fmt.Fprintf(&b, "         at most %d of one tenant at once, cap %d%s\n",
			r.Judge.PeakInflight, r.Judge.InflightCap, verdict(r.Judge.PeakInflight <= r.Judge.InflightCap))
	}
	fmt.Fprintf(&b, "fairness Jain index %.4f over received/entitled\n", r.Jain)
	fmt.Fprintf(&b, "store    %.2f redis calls per grant, %d without an answer in time, %d requests refused for want of it\n",
		r.RedisCallsPerGrant, r.StoreTimeouts, r.Unavailable)
	fmt.Fprintf(&b, "driver   late by %s (p99), %s at most\n\n", Millis(r.DriverLateP99MS), Millis(r.DriverLateMaxMS))
	rows := [][]string{{"tenant", "weight", "entitled", "received", "admitted", "refused", "wait p50", "p99", "max"}}
	for _, t := range r.Tenants {
		rows = append(rows, []string{
			t.Name, fmt.Sprint(t.Weight), Percent(t.EntitledShare), Percent(t.ReceivedShare),
			fmt.Sprint(t.Admitted), fmt.Sprint(t.Refused), Millis(t.WaitMS.P50), Millis(t.WaitMS.P99), Millis(t.WaitMS.Max),
		})
	}
	b.WriteString(Table(rows))
	_, err := io.WriteString(w, b.String())
	return err
}

func verdict(ok bool) string {
	if ok {
		return ", ok"
	}
	return ", EXCEEDED"
}

// Table lays out rows of equal length: the first column to the left, all
// others to the right.
func Table(rows [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	width := 0
	for _, row := range rows {
		width = max(width, len([]rune(row[0])))
	}
	for _, row := range rows {
		cells := slices.Clone(row)
		cells[0] += strings.Repeat(" ", width-len([]rune(row[0])))
		// Each cell is ended by a tab, or the last would not be aligned.
		fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
	}
	w.Flush() // into memory: cannot fail
	// The writer pads the left of the first column as well.
	return strings.ReplaceAll("\n"+b.String(), "\n  ", "\n")[1:]
}

// Percent writes a fraction as a percentage.
func Percent(f float64) string { return fmt.Sprintf("%.1f%%", 100*f) }

// Millis writes milliseconds with a precision that suits their size.
func Millis(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.0fms", ms)
	}
	return fmt.Sprintf("%.1fs", ms/1000)
}

func round(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}
