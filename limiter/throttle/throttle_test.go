package throttle

import (
	"net/http"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// at is an instant so many milliseconds after noon.
func at(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }

// window is a reading of a fixed window of limit requests a minute.
func window(limit, left int64, reset time.Duration) quota.Reading {
	return reading(quota.Observation{Unit: quota.Requests, Window: time.Minute, Limit: limit, Remaining: left, Reset: reset, Refill: quota.RefillWindow})
}

// flow is a reading of a quota that refills all the time.
func flow(limit, left int64) quota.Reading {
	reset := time.Minute * time.Duration(limit-left) / time.Duration(limit)
	return reading(quota.Observation{Unit: quota.Requests, Window: time.Minute, Limit: limit, Remaining: left, Reset: reset, Refill: quota.RefillContinuous})
}

func reading(o ...quota.Observation) quota.Reading {
	return quota.Reading{Observations: o, RetryAfter: quota.Unknown, Cost: quota.Absent}
}

// silence is an answer without a word; after says when to come back.
func silence() quota.Reading { return reading() }

func after(d time.Duration) quota.Reading {
	r := reading()
	r.RetryAfter = d
	return r
}

// start has to be allowed.
func start(t *testing.T, th *Throttle, now time.Time, class Class) Start {
	t.Helper()
	s, v := th.Ask(now, Cost{}, class)
	if !v.OK {
		t.Fatalf("at %v: %+v, want a start", now.Sub(noon), v)
	}
	return s
}

// waits has to wait, and for what.
func waits(t *testing.T, th *Throttle, now time.Time, class Class, why Why) Verdict {
	t.Helper()
	_, v := th.Ask(now, Cost{}, class)
	if v.OK || v.Why != why || v.Wait <= 0 {
		t.Fatalf("at %v: %+v, want to wait for %s", now.Sub(noon), v, why)
	}
	return v
}

// told returns a throttle that has heard one response, sent at noon.
func told(t *testing.T, r quota.Reading) *Throttle {
	t.Helper()
	th := New(Config{})
	th.Answered(at(0), start(t, th, at(0), Interactive), r, quota.ClassOK)
	return th
}

// Q2: a refusal at one replica stops all as soon as they hear of it, and none
// starts again before its time.
func TestRefusalStopsTheFleet(t *testing.T) {
	fleet := []*Throttle{New(Config{}), New(Config{}), New(Config{})}
	for i, th := range fleet {
		th.Fleet(len(fleet), i == 0)
	}
	s := start(t, fleet[1], at(0), Batch)
	if !fleet[1].Answered(at(100), s, after(3*time.Second), quota.ClassQuota) {
		t.Error("a pause that began is not urgent")
	}
	for _, th := range fleet {
		th.Merge(at(101), fleet[1].State())
		th.Merge(at(102), State{}) // who knows nothing changes nothing
	}
	if told := fleet[0].State(); !told.Until.IsZero() {
		t.Errorf("passes on what it was told by others: %+v", told)
	}
	for ms := 101; ms < 3100; ms += 37 {
		for _, th := range fleet {
			waits(t, th, at(ms), Interactive, WhyPaused)
		}
	}
	// Q3: afterwards one of them tries, once, and the others wait for it.
	probe := start(t, fleet[0], at(3100), Interactive)
	for _, th := range fleet {
		waits(t, th, at(3101), Interactive, WhyProbe)
	}
	if !fleet[0].Answered(at(3500), probe, silence(), quota.ClassOK) {
		t.Error("a pause that ended is not urgent")
	}
	for _, th := range fleet {
		th.Merge(at(3501), fleet[0].State())
		start(t, th, at(4600), Interactive)
	}
}

// A probe that is refused makes the next pause longer, to a minute at most; one
// that got no answer is tried again at once.
func TestProbe(t *testing.T) {
	th := New(Config{})
	now := at(0)
	th.Answered(now, start(t, th, now, Interactive), silence(), quota.ClassQuota)
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		v := waits(t, th, now, Interactive, WhyPaused)
		if v.Wait.Round(time.Second) != want*time.Second {
			t.Fatalf("paused for %v, want %v s", v.Wait, int(want))
		}
		now = now.Add(v.Wait)
		if want == 4 {
			th.Failed(start(t, th, now, Interactive))
		}
		th.Answered(now, start(t, th, now, Interactive), silence(), quota.ClassQuota)
	}
	now = now.Add(time.Minute)
	start(t, th, now, Interactive) // and whoever carried it is never heard of again
	waits(t, th, now, Interactive, WhyProbe)
	start(t, th, now.Add(probeTimeout), Interactive)
}

// Without its leader a fleet tries all the same, a little later.
func TestProbeWithoutLeader(t *testing.T) {
	th := New(Config{})
	th.Fleet(3, false)
	th.Answered(at(0), start(t, th, at(0), Interactive), after(time.Second), quota.ClassQuota)
	waits(t, th, at(1000), Interactive, WhyProbe)
	start(t, th, at(3000), Interactive)
}

// "Come back at once" after a refusal is not believed, and a day's quota is not
// asked for every second.
func TestPausesHaveBounds(t *testing.T) {
	for _, c := range []struct {
		told  quota.Reading
		class quota.Class
		want  time.Duration
	}{
		{after(0), quota.ClassQuota, leastPause},
		{silence(), quota.ClassDaily, dayPause},
		{window(10, 0, 40*time.Second), quota.ClassQuota, 40 * time.Second},
	} {
		th := New(Config{})
		th.Answered(at(0), start(t, th, at(0), Interactive), c.told, c.class)
		if v := waits(t, th, at(0), Interactive, WhyPaused); v.Wait != c.want {
			t.Errorf("%s: paused for %v, want %v", c.class, v.Wait, c.want)
		}
	}
}

// An overload is a short pause: nobody's quota is used up, and nothing is probed.
func TestOverload(t *testing.T) {
	th := told(t, flow(60, 59))
	th.Answered(at(10), start(t, th, at(0), Interactive), silence(), quota.ClassOverload)
	if v := waits(t, th, at(20), Interactive, WhyOverload); v.Wait > overloadTime {
		t.Errorf("paused for %v", v.Wait)
	}
	other := New(Config{})
	other.Merge(at(20), th.State())
	waits(t, other, at(20), Interactive, WhyOverload)
	start(t, th, at(2010), Interactive)
	start(t, th, at(2011), Interactive)
}

// An account without money stops at every replica, and is tried once a minute.
func TestStopped(t *testing.T) {
	th, other := New(Config{}), New(Config{})
	th.Fleet(2, true)
	other.Fleet(2, false)
	if !th.Answered(at(0), start(t, th, at(0), Interactive), silence(), quota.ClassTerminal) {
		t.Error("a stop is not urgent")
	}
	other.Merge(at(1), th.State())
	waits(t, th, at(59_000), Interactive, WhyStopped)
	waits(t, other, at(59_000), Interactive, WhyStopped)
	probe := start(t, th, at(60_000), Interactive)
	waits(t, th, at(60_001), Interactive, WhyStopped)
	waits(t, other, at(60_001), Interactive, WhyProbe)
	th.Answered(at(60_100), probe, silence(), quota.ClassTerminal)
	other.Merge(at(60_101), th.State())
	waits(t, other, at(119_000), Interactive, WhyStopped)
	probe = start(t, th, at(121_000), Interactive)
	if !th.Answered(at(121_100), probe, silence(), quota.ClassOK) {
		t.Error("the end of a stop is not urgent")
	}
	other.Merge(at(121_101), th.State())
	start(t, th, at(121_200), Interactive)
	start(t, other, at(121_200), Interactive)
}

// Before a response has come, few start; each answer lets more.
func TestSlowStart(t *testing.T) {
	th := New(Config{})
	var open []Start
	for range firstWindow {
		open = append(open, start(t, th, at(0), Interactive))
	}
	waits(t, th, at(1), Interactive, WhyFirst)
	th.Answered(at(10), open[0], silence(), quota.ClassOK)
	for range firstWindow + 1 { // twice as many as before at once
		start(t, th, at(11), Interactive)
	}
	waits(t, th, at(12), Interactive, WhyFirst)
}

// A provider that says nothing is not paced until it refuses; then the rate falls
// by three tenths, and rises by one for each second in which it was used.
func TestSilentProvider(t *testing.T) {
	th := New(Config{})
	now, n := at(0), 0
	for ; n < 1000; n++ {
		now = now.Add(time.Millisecond)
		th.Answered(now, start(t, th, now, Interactive), silence(), quota.ClassOK)
	}
	th.Answered(now, start(t, th, now, Interactive), after(100*time.Millisecond), quota.ClassQuota)
	now = now.Add(100 * time.Millisecond)
	th.Answered(now, start(t, th, now, Interactive), silence(), quota.ClassOK)
	first := th.silent.rate
	if first < 600 || first > 701 {
		t.Fatalf("rate %v after 1000 in a second, want 0.7 of it", first)
	}
	for end := now.Add(10 * time.Second); now.Before(end); {
		s, v := th.Ask(now, Cost{}, Interactive)
		if !v.OK {
			now = now.Add(v.Wait)
			continue
		}
		th.Answered(now, s, silence(), quota.ClassOK)
	}
	if r := th.silent.rate / first; r < 2.1 || r > 2.8 {
		t.Errorf("the rate rose by %v in ten seconds, want about 1.1^9", r)
	}
	th.Answered(now, Start{at: now}, silence(), quota.ClassQuota)
	second := th.silent.rate
	th.Answered(now, Start{at: now}, silence(), quota.ClassQuota)
	if th.silent.rate != second {
		t.Error("two refusals in one second cut twice")
	}
}

// Q4: batch work never takes what is known to be below the reserve, however many
// quotas there are and whether anything is answered; interactive work may.
func TestReserve(t *testing.T) {
	for name, r := range map[string]quota.Reading{"window": window(100, 99, time.Minute), "flow": flow(100, 99)} {
		th := told(t, r)
		var started int
		now := at(0)
		for range 4000 {
			now = now.Add(5 * time.Millisecond)
			for _, l := range th.lanes {
				if known := l.At(now) - float64(len(th.open)); known < 20 {
					waits(t, th, now, Batch, WhyReserve)
				}
			}
			if _, v := th.Ask(now, Cost{}, Batch); v.OK {
				started++
			}
		}
		if want := 79; name == "window" && started != want {
			t.Errorf("%s: %d batch starts before the reserve, want %d", name, started, want)
		}
		start(t, th, now, Interactive)
	}
}

// What was started after a response was made is not given back by it, however
// late it comes.
func TestLateResponseGivesNothingBack(t *testing.T) {
	th := New(Config{Reserve: -1})
	slow := start(t, th, at(0), Interactive)
	for range 3 {
		start(t, th, at(1), Interactive)
	}
	th.Answered(at(100), slow, window(8, 7, time.Minute), quota.ClassOK)
	for i := range 4 { // eight in all: seven were left, and three are under way
		start(t, th, at(10_000+5_000*i), Interactive)
	}
	waits(t, th, at(40_000), Interactive, WhyLevel)
	// Answers that were under way for long tell of the past, whether their reset
	// counts from then or from now.
	th.Answered(at(50_000), Start{at: at(0)}, window(8, 8, time.Minute), quota.ClassOK)
	th.Answered(at(50_000), Start{at: at(0)}, window(8, 8, 10*time.Second), quota.ClassOK)
	waits(t, th, at(50_001), Interactive, WhyLevel)
}

// At a reset nobody believes in a full quota: the first 100 ms start a tenth of it
// at most, and the first second as well, before any answer.
func TestReset(t *testing.T) {
	for _, n := range []int{1, 8, 32} {
		early, second := 0, 0
		for range n {
			th := New(Config{})
			th.Fleet(n, true)
			th.Merge(at(0), State{Levels: map[Key]Level{{Unit: quota.Requests}: {
				Limit: 6000, Period: time.Minute, Windowed: true, End: at(10_000), Seen: at(0),
			}}})
			waits(t, th, at(9_900), Batch, WhyLevel)
			for ms := 10_000; ms < 11_000; ms++ {
				for _, class := range []Class{Interactive, Batch} {
					for {
						if _, v := th.Ask(at(ms), Cost{}, class); !v.OK {
							break
						}
						if second++; ms < 10_100 {
							early++
						}
					}
				}
			}
		}
		if early > 600 || second > 600 {
			t.Errorf("%d replicas: %d starts in 100 ms after a reset, %d in a second, of 6000", n, early, second)
		}
		if second < 10 {
			t.Errorf("%d replicas: only %d starts in the second after a reset", n, second)
		}
	}
}

// What costs more than a share ever holds starts when the share is whole.
func TestLargeCost(t *testing.T) {
	th := New(Config{})
	th.Fleet(10, true)
	th.Answered(at(0), start(t, th, at(0), Interactive), reading(quota.Observation{
		Unit: quota.Tokens, Window: time.Minute, Limit: 10_000, Remaining: 9_990, Reset: 60 * time.Millisecond, Refill: quota.RefillContinuous,
	}), quota.ClassOK)
	big := Cost{Input: 4_000, Output: 1_000}
	now := at(60_000)
	for _, class := range []Class{Interactive, Batch} {
		begun := now
		for {
			s, v := th.Ask(now, big, class)
			if v.OK {
				th.Answered(now, s, silence(), quota.ClassOK)
				break
			}
			if now = now.Add(v.Wait); now.Sub(begun) > 5*time.Minute {
				t.Fatalf("class %d: half of the limit never starts: %+v", class, v)
			}
		}
	}
	if _, v := th.Ask(now, Cost{}, Interactive); !v.OK {
		t.Errorf("a request without tokens waits for tokens: %+v", v)
	}
}

// What was used beyond the estimate is made up for by the pace, and what was not is
// given back to it.
func TestSettled(t *testing.T) {
	for _, used := range []int64{0, 100, 300} { // each takes 12 ms to flow in
		th := New(Config{Reserve: -1})
		s := start(t, th, at(0), Interactive)
		th.Answered(at(1), s, reading(quota.Observation{
			Unit: quota.Tokens, Window: time.Minute, Limit: 5_000, Remaining: 5_000, Reset: 0, Refill: quota.RefillContinuous,
		}), quota.ClassOK)
		now := at(10_000)
		for range 2 { // the burst is 250
			s, v := th.Ask(now, Cost{Input: 100}, Batch)
			if !v.OK {
				t.Fatalf("%+v", v)
			}
			th.Answered(now, s, silence(), quota.ClassOK)
		}
		s, v := th.Ask(now, Cost{Input: 50}, Batch)
		if !v.OK {
			t.Fatalf("%+v", v)
		}
		th.Answered(now, s, silence(), quota.ClassOK)
		th.Settled(s, Cost{Input: used})
		begun := now
		for {
			if _, v := th.Ask(now, Cost{Input: 50}, Batch); v.OK {
				break
			}
			now = now.Add(50 * time.Millisecond)
		}
		if got, want := now.Sub(begun), time.Duration(used)*12*time.Millisecond; got < want-100*time.Millisecond || got > want+100*time.Millisecond {
			t.Errorf("%d used of 50: the next starts after %v, want %v", used, got, want)
		}
	}
}

// Quotas that nobody speaks of any more are forgotten, and there is a bound.
func TestForgets(t *testing.T) {
	th := told(t, window(10, 0, time.Minute))
	waits(t, th, at(1), Interactive, WhyLevel)
	for i := range 100 {
		th.Merge(at(700_000), State{Levels: map[Key]Level{{Unit: quota.Tokens, Scope: string(rune('a' + i))}: {
			Limit: 10, Period: time.Minute, End: at(0), Seen: at(700_000),
		}}})
	}
	if _, old := th.lanes[Key{quota.Requests, time.Minute, ""}]; old || len(th.lanes) > maxLanes {
		t.Errorf("%d quotas are kept, the old one: %v", len(th.lanes), old)
	}
}

// What makes no sense restricts nobody, and epoch milliseconds are neither 56,000
// years nor nothing.
func TestOddValues(t *testing.T) {
	read := func(pairs ...string) quota.Reading {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return quota.Read("", h, nil, noon)
	}
	th := told(t, read("x-ratelimit-limit-requests", "-1", "x-ratelimit-remaining-requests", "-1", "x-ratelimit-reset-requests", "0"))
	if len(th.lanes) != 0 {
		t.Errorf("-1 of -1 is taken for a quota: %+v", th.Status(at(1)))
	}
	start(t, th, at(1), Batch)
	th = told(t, read("x-ratelimit-limit", "100", "x-ratelimit-remaining", "0", "x-ratelimit-reset", "1796040030000")) // noon + 30 s
	if v := waits(t, th, at(1), Interactive, WhyLevel); v.Wait < 29*time.Second || v.Wait > 31*time.Second {
		t.Errorf("waits %v, want 30 s", v.Wait)
	}
}
