package agents

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestHealth(t *testing.T) {
	var h health
	now := time.Unix(0, 0)
	for range failuresOut - 1 {
		h.failed(false, now)
	}
	h.served(false) // not in a row
	for i := range failuresOut {
		if h.out() {
			t.Fatalf("out after %d failures", i)
		}
		h.failed(false, now)
	}
	for pause := firstPause; pause <= 4*longestPause; pause *= 2 {
		want := min(pause, longestPause)
		if h.open(now.Add(want-1)) || !h.open(now.Add(want)) {
			t.Fatalf("after a pause of %v: open before %v, or not at", want, want)
		}
		now = now.Add(want)
		h.failed(false, now) // of one that began before
		if !h.begin(now) || h.open(now) {
			t.Fatal("more than one request is on trial")
		}
		if h.open(now.Add(trialMost-1)) || !h.open(now.Add(trialMost)) {
			t.Fatalf("a trial of %v keeps others out, or a shorter one does not", trialMost)
		}
		h.failed(true, now)
	}
	if !h.open(now.Add(longestPause)) || !h.begin(now) || h.served(false) || !h.served(true) || h.out() {
		t.Error("a trial that is served does not bring it back")
	}
}

// fail takes an agent out.
func (r *rig) fail(replica int, agent string) {
	for range failuresOut {
		r.take(replica, want("ann", agent)).Free(true)
	}
}

func TestAgentThatFailsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(2, "a", "b"))
		r.fail(0, "a")
		for range 5 {
			s := r.take(0, want("ann", "a", "b"))
			if s.Agent() != "b" {
				t.Errorf("a request went to %s", s.Agent())
			}
			s.Free(false)
		}
		_, err := r.sets[0].Acquire(context.Background(), want("ann", "a"))
		var sat *Saturated
		if !errors.As(err, &sat) || !sat.Down || sat.Reason != ReasonCapacity {
			t.Errorf("no agent is well: %+v", err)
		}
		time.Sleep(firstPause)
		trial := r.take(0, want("ann", "a"))
		if _, err := r.sets[0].Acquire(context.Background(), want("ann", "a")); !errors.As(err, &sat) || !sat.Down {
			t.Errorf("while one is on trial: %v", err)
		}
		trial.Cancel() // nothing is known
		trial = r.take(0, want("ann", "a"))
		trial.Free(false)
		if !r.sets[0].States()[0].Healthy {
			t.Error("a trial was served, and it is still out")
		}
		s, o := r.take(0, want("ann", "a")), r.take(0, want("ann", "a"))
		s.Free(false)
		o.Free(false)
	})
}

// TestWaitersOutliveAPause: who waits when an agent fails is served when it is back.
func TestWaitersOutliveAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(3, "a"))
		var slots []*Slot
		for range failuresOut {
			slots = append(slots, r.take(0, want("ann", "a")))
		}
		served := make(chan error)
		for range 4 {
			go func() { served <- r.run(context.Background(), 0, "bob", want("bob", "a"), time.Millisecond) }()
		}
		synctest.Wait()
		before := time.Now()
		r.sets[0].mu.Lock() // all fail at the same instant
		for range failuresOut {
			r.sets[0].agents["a"].health.failed(false, before)
		}
		r.sets[0].mu.Unlock()
		for _, s := range slots {
			s.Free(true)
		}
		for range 4 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(before); d < firstPause || d > firstPause+100*time.Millisecond {
			t.Errorf("they were served after %v, want after the pause of %v", d, firstPause)
		}
	})
}

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := agentsOf(1, "a")
		c.Agents[0].Probe = time.Second
		r := newRig(t, 1, c)
		set := func(err error) { r.mu.Lock(); r.probes["a"] = err; r.mu.Unlock() }
		well := func() bool { return r.sets[0].States()[0].Healthy }
		time.Sleep(3 * time.Second)
		if !well() {
			t.Error("probes succeed, and it is out")
		}
		set(errors.New("refused"))
		time.Sleep(4 * time.Second)
		if well() {
			t.Error("probes fail, and it is well")
		}
		time.Sleep(time.Minute)
		if _, err := r.sets[0].Acquire(context.Background(), want("ann", "a")); reason(err) != "capacity_exceeded" {
			t.Errorf("an agent whose probes fail was tried with a request: %v", err)
		}
		set(nil)
		time.Sleep(1200 * time.Millisecond)
		if !well() {
			t.Error("a probe succeeded, and it is still out")
		}
		r.take(0, want("ann", "a")).Free(false)
		c.Agents[0].Probe = 0
		r.sets[0].Configure(c)
		synctest.Wait()
		count := func() int { r.mu.Lock(); defer r.mu.Unlock(); return r.probed["a"] }
		n := count()
		time.Sleep(time.Minute)
		if count() != n {
			t.Error("it is probed although that was turned off")
		}
	})
}

// TestTrialEndsWithTheFirstByte: an agent that is back serves others while the request
// that showed it goes on; if that breaks off in the end, it is one failure like any.
func TestTrialEndsWithTheFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(2, "a"))
		for range failuresOut {
			r.take(0, want("ann", "a")).Free(true)
		}
		time.Sleep(firstPause)
		trial, other := r.take(0, want("ann", "a")), want("bob", "a")
		other.Queue = false
		if _, err := r.sets[0].Acquire(context.Background(), other); reason(err) != string(ReasonCapacity) {
			t.Errorf("beside a trial: %v", err)
		}
		trial.Answers()
		slot := r.take(0, other)
		trial.Free(true)
		if !r.sets[0].States()[0].Healthy {
			t.Error("one answer that broke off has taken the agent out")
		}
		slot.Answers() // of one that is on no trial it says nothing
		slot.Free(false)
	})
}
