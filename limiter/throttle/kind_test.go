package throttle

import (
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
)

// What a dialect leaves open is found out from a few responses, also after the
// provider has changed its mind.
func TestKind(t *testing.T) {
	var k kind
	observe := func(now time.Duration, left int64, reset time.Duration) quota.Refill {
		o := quota.Observation{Limit: 600, Remaining: left, Reset: reset, Refill: quota.RefillUnknown}
		return k.of(o, noon.Add(now)).Refill
	}
	if got := observe(0, 599, 100*time.Millisecond); got != quota.RefillContinuous {
		t.Errorf("0.1 s for one of 600: %v", got)
	}
	for i := range 6 {
		missing := 10 + 7*int64(i)
		if got := observe(time.Duration(i+1)*time.Second, 600-missing, time.Duration(missing)*100*time.Millisecond); got != quota.RefillContinuous {
			t.Errorf("as long as is missing, response %d: %v", i, got)
		}
	}
	var got quota.Refill
	for i := range 8 {
		now := time.Duration(10+i) * time.Second
		got = observe(now, int64(500-20*i), time.Minute-now)
	}
	if got != quota.RefillWindow {
		t.Errorf("the same end eight times: %v", got)
	}
	k = kind{}
	if got := observe(0, 599, 55*time.Second); got != quota.RefillWindow {
		t.Errorf("55 s for one of 600: %v", got)
	}
	known := quota.Observation{Limit: 10, Remaining: 5, Reset: time.Second, Refill: quota.RefillWindow}
	if got := k.of(known, noon); got != known {
		t.Errorf("what the dialect says was changed: %+v", got)
	}
}

// A quota of the day of which little is used would take longer to flow in than a
// Duration holds: it is a window from the first response on.
func TestKindOfLargeQuota(t *testing.T) {
	var k kind
	o := k.of(quota.Observation{Limit: 1_000_000, Remaining: 999_999, Reset: 23 * time.Hour}, noon)
	if l, known := levelOf(o, noon); o.Refill != quota.RefillWindow || !known || l.Remaining != 999_999 || !l.End.Equal(noon.Add(23*time.Hour)) {
		t.Errorf("%+v, %v: %+v", o, known, l)
	}
}
