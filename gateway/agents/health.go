package agents

import "time"

const (
	// failuresOut is how many failures in a row take an agent out. Fewer could be
	// chance: of one request in ten that fails, three in a row are one in a thousand.
	failuresOut  = 3
	firstPause   = time.Second
	longestPause = 30 * time.Second
	// trialMost is for how long one request on trial keeps others out. It may be slow
	// through no fault of the agent, as where its client sends a body byte by byte.
	trialMost = 2 * time.Second
)

// health is what is known of an agent's. Its zero value is well.
//
//	well --3 failures in a row--> out for a pause --> one request on trial
//	  ^------------------ it is served --------------------'  |
//	                  out for twice as long <--- it fails ----'
//
// A trial that takes longer than trialMost has company.
//
// An agent that is probed is not tried with requests: its probes bring it back.
type health struct {
	fails int
	pause time.Duration
	until time.Time // out until then, and then on trial; zero: well
	trial bool      // a request is on trial
	tried time.Time // when that began
	probe bool      // it is probed
}

// out reports whether the agent is not well.
func (h *health) out() bool { return !h.until.IsZero() }

// open reports whether a request may be sent there.
func (h *health) open(now time.Time) bool {
	busy := h.trial && now.Sub(h.tried) < trialMost
	return !h.out() || !h.probe && !busy && !now.Before(h.until)
}

// begin notes that a request is sent to an agent that was out, and reports whether it
// is yet: then that request is the one on trial.
func (h *health) begin(now time.Time) bool {
	h.trial, h.tried = h.out(), now
	return h.trial
}

// failed notes a failure of a request or of a probe. What began before the agent was
// taken out says nothing new.
func (h *health) failed(trial bool, now time.Time) {
	switch {
	case h.out() && !trial:
		return
	case h.out():
		h.trial, h.pause = false, min(2*h.pause, longestPause)
	default:
		if h.fails++; h.fails < failuresOut {
			return
		}
		h.pause = firstPause
	}
	h.until = now.Add(h.pause)
}

// served notes a success, and reports whether the agent was out and is back.
func (h *health) served(trial bool) (back bool) {
	if h.out() && !trial {
		return false
	}
	back = h.out()
	*h = health{probe: h.probe}
	return back
}
