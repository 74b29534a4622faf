package redisstore

import (
	"math"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// verdict reads a reply of admit.
func verdict(t limiter.Take, reply []int64) limiter.Verdict {
	v := limiter.Verdict{OK: reply[0] == statusGranted}
	nb := len(t.Charges)
	if len(reply) < 2+2*nb+len(t.Slots) {
		return v // too late: it carries no levels, and is sent again
	}
	v.Charges = levels(reply[2:], nb)
	v.Full = make([]bool, len(t.Slots))
	for i := range t.Slots {
		v.Full[i] = reply[2+2*nb+i] == leaseFull
	}
	claims := reply[2+2*nb+len(t.Slots):]
	for i, ch := range t.Charges {
		if ch.InTurn && len(claims) > 0 {
			v.Charges[i].Contended, claims = claims[0] == 1, claims[1:]
		}
	}
	return v
}

// peeked reads a reply of inspect.
func peeked(t limiter.Take, reply []int64) limiter.Verdict {
	nb := len(t.Charges)
	v := limiter.Verdict{OK: true, Charges: levels(reply[2:], nb), Full: make([]bool, len(t.Slots))}
	for i, sl := range t.Slots {
		v.Full[i] = reply[2+2*(nb+i)+1] >= int64(sl.Cap)
		v.OK = v.OK && !v.Full[i]
	}
	for _, ch := range v.Charges {
		v.OK = v.OK && ch.Wait == 0
	}
	return v
}

// levels reads n pairs of level (micro-tokens) and wait (µs). Levels are rounded
// down, also below zero: half a token is none, half a token of debt is a debt.
func levels(reply []int64, n int) []limiter.ChargeVerdict {
	list := make([]limiter.ChargeVerdict, n)
	for i := range list {
		list[i].Remaining = int64(math.Floor(float64(reply[2*i]) / 1e6))
		if wait := reply[2*i+1]; wait < 0 {
			list[i].Wait = limiter.Never
		} else {
			list[i].Wait = time.Duration(min(wait, math.MaxInt64/1000)) * time.Microsecond
		}
	}
	return list
}
