package bench

import (
	"cmp"
	"slices"
	"time"
)

// Outage is what requests and the provider show of a time without the store, or
// without one of the replicas: then nothing is by policy. Times are in milliseconds; -1 where there was nothing to measure or it never
// happened.
//
// An answer is "by policy" when it says that it was decided without the store:
// refused as limiter_unavailable, or marked as degraded. The instant of a
// decision is when its answer came, less the time that the provider took.
type Outage struct {
	Offered int `json:"offered"` // requests that were due meanwhile
	// Admitted is how many reached the provider. AdmittedLate is how many were
	// admitted, and due when the outage must have been known: later than detection
	// may take, and decided before the store's return began.
	Admitted     int `json:"admitted"`
	AdmittedLate int `json:"admitted_late"`
	// Refused counts 429s, Unavailable refusals by policy, Degraded admissions by
	// policy, and Failed requests without a proper answer.
	Refused     int `json:"refused"`
	Unavailable int `json:"unavailable"`
	Degraded    int `json:"degraded"`
	Failed      int `json:"failed"`
	// LimitRatio is Admitted divided by rate × time; OverAdmissionRatio is Admitted
	// divided by what the limit allows at most, burst + rate × time.
	LimitRatio         float64 `json:"limit_ratio"`
	OverAdmissionRatio float64 `json:"over_admission_ratio"`
	// FirstPolicyMS is the fleet's first answer by policy, AllPolicyMS that of the
	// last replica to give one. LastWaitMS is the last answer that waited for
	// about as long as one may wait for the store, in an unbroken series from the
	// begin. The greater of the latter two is the time to detect.
	FirstPolicyMS float64 `json:"first_policy_ms"`
	AllPolicyMS   float64 `json:"all_policy_ms"`
	LastWaitMS    float64 `json:"last_wait_ms"`
	// BaseP99MS is the time to an answer before the outage. The others are how
	// much longer it took: in the first second, in the rest of the outage, and
	// after the store's return.
	BaseP99MS       float64 `json:"base_p99_ms"`
	AddedFirstP99MS float64 `json:"added_first_p99_ms"`
	AddedRestP99MS  float64 `json:"added_rest_p99_ms"`
	AddedBackP99MS  float64 `json:"added_back_p99_ms"`
	// RecoveredMS is from the store's return until every replica has admitted a
	// request by it, even if answers by policy came later.
	RecoveredMS float64 `json:"recovered_ms"`
	// Strays counts answers by policy where none should be: before the outage,
	// and after it was healed. A machine that stalls for longer than the store's
	// deadline makes some.
	Strays int `json:"strays"`
	// DriverLateP99MS is how much later than due requests were sent, from the
	// second before the outage until the end of what is judged. The others are of
	// the parts that the delays of the same names are of: one stall of 50 ms is
	// enough to be the 99th percentile of a few seconds.
	DriverLateP99MS      float64 `json:"driver_late_p99_ms"`
	DriverLateFirstP99MS float64 `json:"driver_late_first_p99_ms"`
	DriverLateRestP99MS  float64 `json:"driver_late_rest_p99_ms"`
}

const (
	// reasonUnavailable is the code of a refusal for want of a store.
	reasonUnavailable = "limiter_unavailable"
	// detection is how long a fleet may take to notice.
	detection = 500 * time.Millisecond
	// nearly is the part of the store's deadline from which on a wait is one for
	// the store.
	nearly = 0.8
	// waitGap parts waits for the store from stalls of the machine: requests come
	// every few ms, so those that wait for the store follow each other closely.
	waitGap = 250 * time.Millisecond
	// healGap is how long a replica must decide by the store, and by nothing
	// else, to be healed. No breaker waits longer between two looks at it.
	healGap = time.Second
	// baseSpan is how long before the outage times to an answer are looked at.
	baseSpan = 3 * time.Second
)

// decided is when the answer of e was decided, see Outage.
func (e Event) decided() time.Time { return e.Due.Add(e.Wait) }

// answered reports whether e was decided at all.
func (e Event) answered() bool { return e.Kind == Admitted || e.Kind == Refused }

// byPolicy reports whether e was decided without the store.
func (e Event) byPolicy() bool {
	return e.answered() && (e.Degraded != "" || e.Reason == reasonUnavailable)
}

// judgeOutage fills in what the trouble between begin and end did.
func (t *Trial) judgeOutage(f *FaultReport, begin, end time.Time) {
	o := &Outage{}
	f.Outage = o
	until := end.Add(recoverySpan)
	events := slices.SortedFunc(slices.Values(t.Events), func(a, b Event) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Tenant, b.Tenant))
	})
	t.countOutage(o, events, begin, end)
	o.AdmittedLate = admittedBetween(events, begin.Add(detection), begin.Add(time.Duration(f.AwayS*float64(time.Second))))
	t.detect(o, events, begin, end)
	// Of a replica, the others know best when they noticed.
	if TroubleKind(f.Kind).TakesStore() {
		if f.DetectMS = max(o.AllPolicyMS, o.LastWaitMS); o.AllPolicyMS < 0 {
			f.DetectMS = -1
		}
		o.RecoveredMS, f.HealMS, o.Strays = t.heal(events, end, until)
	}
	o.Strays += strays(events, begin)
	t.delays(o, events, begin, end, until)
}

// countOutage fills in what was asked, answered and let through.
func (t *Trial) countOutage(o *Outage, events []Event, begin, end time.Time) {
	for _, s := range t.Starts {
		at := t.Since.Add(s.At)
		if !at.Before(begin) && at.Before(end) {
			o.Admitted++
		}
	}
	for _, e := range events {
		if e.Due.Before(begin) || !e.Due.Before(end) {
			continue
		}
		o.Offered++
		switch {
		case e.Kind == Refused && e.Reason == reasonUnavailable:
			o.Unavailable++
		case e.Kind == Refused:
			o.Refused++
		case e.Kind == Admitted && e.Degraded != "":
			o.Degraded++
		case e.Kind == Failed, e.Kind == Dropped:
			o.Failed++
		}
	}
	worth := t.Limit.Rate() * end.Sub(begin).Seconds()
	o.LimitRatio = round(float64(o.Admitted)/worth, 4)
	o.OverAdmissionRatio = round(float64(o.Admitted)/(worth+float64(t.Limit.Burst)), 4)
}

// admittedBetween counts requests that were due and admitted between two
// instants.
func admittedBetween(events []Event, from, to time.Time) (n int) {
	for _, e := range events {
		if e.Kind == Admitted && e.Due.After(from) && e.decided().Before(to) {
			n++
		}
	}
	return n
}

// detect fills in when the fleet first answered by policy, when all of it did,
// and until when requests waited for the store.
func (t *Trial) detect(o *Outage, events []Event, begin, end time.Time) {
	first := make(map[int]time.Time, t.Replicas)
	last, series := begin, begin
	for _, e := range events {
		if at := e.decided(); e.byPolicy() && !at.Before(begin) && at.Before(end) {
			if was, known := first[e.Target]; !known || at.Before(was) {
				first[e.Target] = at
			}
		}
		// A request that was sent late did not wait for the store meanwhile.
		waited := e.answered() && e.Wait-e.Late >= time.Duration(nearly*float64(t.StoreTimeout))
		// Whoever came just before the outage may wait for it as well.
		if waited && !e.decided().Before(begin) && e.Due.Before(end) && e.Due.Sub(series) <= waitGap {
			series = e.Due
			last = later(last, e.decided())
		}
	}
	o.FirstPolicyMS, o.AllPolicyMS = -1, -1
	for _, at := range first {
		ms := millis(at.Sub(begin))
		if o.FirstPolicyMS < 0 || ms < o.FirstPolicyMS {
			o.FirstPolicyMS = ms
		}
		if len(first) == t.Replicas {
			o.AllPolicyMS = max(o.AllPolicyMS, ms)
		}
	}
	o.LastWaitMS = millis(last.Sub(begin))
}

// heal is the time from end until every replica has admitted a request by the
// store: any, and one that no answer by policy follows within healGap. It is -1
// if a replica never did. It also counts the answers by policy that came later
// still.
func (t *Trial) heal(events []Event, end, until time.Time) (recovered, healed float64, relapses int) {
	replicas := make([]healing, t.Replicas)
	decisions := slices.SortedFunc(slices.Values(events), func(a, b Event) int { return a.decided().Compare(b.decided()) })
	for _, e := range decisions {
		if at := e.decided(); e.answered() && !at.Before(end) && at.Before(until) {
			replicas[e.Target].see(e)
		}
	}
	for _, h := range replicas {
		relapses += h.relapses
		recovered, healed = longest(recovered, h.first, end), longest(healed, h.since, end)
	}
	return recovered, healed, relapses
}

// longest is the greater of ms and the time from begin to at; -1 once an instant
// is none.
func longest(ms float64, at, begin time.Time) float64 {
	if ms < 0 || at.IsZero() {
		return -1
	}
	return max(ms, millis(at.Sub(begin)))
}

// healing is one replica after the store's return.
type healing struct {
	first    time.Time // admission by the store
	since    time.Time // the first one with no answer by policy soon after
	relapses int
}

// see takes the replica's next decision, in order of time.
func (h *healing) see(e Event) {
	switch {
	case !e.byPolicy():
		if e.Kind != Admitted {
			return // a refusal by the store may look like one without it
		}
		if h.since.IsZero() {
			h.since = e.decided()
		}
		if h.first.IsZero() {
			h.first = e.decided()
		}
	case h.since.IsZero():
	case e.decided().Sub(h.since) < healGap:
		h.since = time.Time{}
	default:
		h.relapses++
	}
}

// strays counts answers by policy before begin.
func strays(events []Event, begin time.Time) (n int) {
	for _, e := range events {
		if e.byPolicy() && e.decided().Before(begin) {
			n++
		}
	}
	return n
}

// delays fills in the times to an answer, and what the driver was to blame for.
func (t *Trial) delays(o *Outage, events []Event, begin, end, until time.Time) {
	second := begin.Add(time.Second)
	if second.After(end) {
		second = end
	}
	o.BaseP99MS = p99(events, begin.Add(-baseSpan), begin.Add(-100*time.Millisecond))
	o.AddedFirstP99MS = round(p99(events, begin, second)-o.BaseP99MS, 3)
	o.AddedRestP99MS = round(p99(events, second, end)-o.BaseP99MS, 3)
	o.AddedBackP99MS = round(p99(events, end, until)-o.BaseP99MS, 3)
	o.DriverLateP99MS = quantile(t.lateness(begin.Add(-time.Second), until), 0.99)
	o.DriverLateFirstP99MS = quantile(t.lateness(begin, second), 0.99)
	o.DriverLateRestP99MS = quantile(t.lateness(second, end), 0.99)
}

// p99 is that of the times to an answer of the requests due between two
// instants, in ms.
func p99(events []Event, from, to time.Time) float64 {
	var waits []float64
	for _, e := range events {
		if e.answered() && !e.Due.Before(from) && e.Due.Before(to) {
			waits = append(waits, millis(e.Wait))
		}
	}
	slices.Sort(waits)
	return quantile(waits, 0.99)
}

// lateness is how late the driver was with the requests due between two
// instants: sorted, in ms.
func (t *Trial) lateness(from, to time.Time) (late []float64) {
	for _, e := range t.Events {
		if e.Kind != Dropped && !e.Due.Before(from) && e.Due.Before(to) {
			late = append(late, millis(e.Late))
		}
	}
	slices.Sort(late)
	return late
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
