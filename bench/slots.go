package bench

import "time"

// Slots is what the provider saw of caps on requests in flight.
type Slots struct {
	Cap int64 `json:"cap"` // of each tenant
	// Peak is the most requests of one tenant that ever ran at once. Above Cap is
	// the fleet's fault: a place counts as free before the last byte of its answer.
	Peak int64 `json:"peak"`
	// Utilisation is how much of all caps together was in use, over the measured
	// part.
	Utilisation float64 `json:"utilisation"`
	// LongestS is the longest answer that came to its end, in seconds, and TTLs
	// that in times of the lease: slots that long were renewed.
	LongestS float64 `json:"longest_s"`
	TTLs     float64 `json:"ttls"`
}

// longStreams is a scenario in which nothing but slots limits. Each answer is a
// stream that is silent for a second between tokens. The lease is a tenth of
// the usual one, so half a minute shows what five minutes would.
var longStreams = Scenario{
	Name: "long-streams", Help: "streams that outlive their leases many times, more than the caps allow", Balance: RoundRobin,
	Rate: 100, Places: 1, Immediate: true, Answer: Uniform(8, 24), TokenGap: Constant(1),
	Slots: 4, LeaseTTL: time.Second, Measured: 40 * time.Second,
	Members: []Member{
		// One request a second each: four times what its slots can take.
		{"stream-1", Small, 1, 0.06}, {"stream-2", Small, 1, 0.06}, {"stream-3", Small, 1, 0.06},
		{"stream-4", Small, 1, 0.06}, {"stream-5", Small, 1, 0.06}, {"stream-6", Small, 1, 0.06},
	},
}

// judgeSlots holds what ran at once against the cap.
func (t *Trial) judgeSlots(r *Run) {
	if t.SlotCap == 0 {
		return
	}
	s := &Slots{Cap: t.SlotCap}
	r.Slots = s
	for _, tenant := range t.Tenants {
		s.Peak = max(s.Peak, t.Peaks[tenant.Tenant])
	}
	from, to := t.Begin.Add(t.Warm), t.Begin.Add(t.Warm+t.Measured)
	var used, longest time.Duration
	for _, e := range t.Events {
		// Whoever is cut off at the end of the run has had its slot until then.
		if e.Kind != Admitted && e.Kind != Aborted {
			continue
		}
		if e.Kind == Admitted {
			longest = max(longest, e.End.Sub(e.decided()))
		}
		begin, end := later(e.decided(), from), e.End
		if end.After(to) {
			end = to
		}
		used += max(end.Sub(begin), 0)
	}
	s.Utilisation = round(used.Seconds()/(t.Measured.Seconds()*float64(t.SlotCap)*float64(len(t.Tenants))), 4)
	s.LongestS = round(longest.Seconds(), 3)
	if t.LeaseTTL > 0 {
		s.TTLs = round(longest.Seconds()/t.LeaseTTL.Seconds(), 2)
	}
}
