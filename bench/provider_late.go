package bench

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// LateRule has a share of the answers tell of an earlier instant, and come in another
// order than they were asked for. The zero rule has none.
type LateRule struct {
	// Share of all answers, 0..1: half of them tell what the quota was up to By ago,
	// the other half are held back for up to By longer.
	Share float64
	By    time.Duration // > 0 if Share is
}

// ParseLate reads "SHARE:DURATION", as in "0.2:300ms".
func ParseLate(text string) (LateRule, error) {
	share, by, _ := strings.Cut(text, ":")
	p, err := strconv.ParseFloat(share, 64)
	d, err2 := time.ParseDuration(by)
	if err != nil || err2 != nil {
		return LateRule{}, fmt.Errorf("bench: late %q is not SHARE:DURATION, as in 0.2:300ms", text)
	}
	r := LateRule{Share: p, By: d}
	return r, r.validate()
}

func (r LateRule) validate() error {
	if !(r.Share >= 0 && r.Share <= 1) || r.Share > 0 && (r.By <= 0 || r.By > maxLatency) {
		return fmt.Errorf("bench: late: share %v is not in 0..1, or %v not in 1ns..%v", r.Share, r.By, maxLatency)
	}
	return nil
}

// maxPast bounds how many earlier levels are kept.
const maxPast = 4096

// lateness is what a LateRule needs to know. It is safe for concurrent use.
type lateness struct {
	LateRule

	mu   sync.Mutex
	past []toldLevels // in order
}

// toldLevels are the quota headers of one answer.
type toldLevels struct {
	at     time.Time
	header http.Header
}

// spoil takes in what an answer tells now, and returns what it tells instead, and for
// how long it is held back. Where there is no earlier answer, it tells the truth.
func (l *lateness) spoil(now time.Time, levels http.Header, rng *rand.Rand) (http.Header, time.Duration) {
	if l.Share == 0 {
		return levels, 0
	}
	// Both are drawn in any case, so that chance is the same for all that follow.
	luck, by := rng.Float64(), time.Duration(rng.Float64()*float64(l.By))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.past = append(l.past, toldLevels{now, levels})
	for len(l.past) > maxPast || len(l.past) > 1 && now.Sub(l.past[1].at) > l.By {
		l.past = l.past[1:]
	}
	switch {
	case luck >= l.Share:
		return levels, 0
	case luck >= l.Share/2:
		return levels, by
	}
	told := l.past[0].header
	for _, p := range l.past {
		if now.Sub(p.at) < by {
			break
		}
		told = p.header
	}
	return told, 0
}
