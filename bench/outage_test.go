package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// An outage of 4 s, 4 s after the begin, on two replicas with a limit of 10/s:
// one request every 50 ms, to one replica and the other in turn.
const (
	outageFrom = 4 * time.Second
	outageTo   = 8 * time.Second
	trialEnd   = 12 * time.Second
	every      = 50 * time.Millisecond
)

// script says how a request due at d, of replica target, is answered.
type script func(d time.Duration, target int, e *Event)

// outageTrial is a trial of requests that are answered within 5 ms, every other
// one admitted, unless the scripts say otherwise. The provider sees what is
// admitted.
func outageTrial(policy string, scripts ...script) *Trial {
	begin := time.Unix(1000, 0)
	t := &Trial{
		Scenario: "redis_down/" + policy, Scope: "replica", Replicas: 2, Seed: 1, Redis: "127.0.0.1:1", Machine: "a machine", Version: "v0",
		Limit: LimitReport{Requests: 10, PerS: 1, Burst: 2}, Begin: begin, Since: begin, Measured: trialEnd,
		Tenants:  []Tenant{{Load: Load{Tenant: "a", Weight: 1}, Class: Heavy, Places: 1}},
		OnOutage: policy, StoreTimeout: 50 * time.Millisecond, RedisVersion: "7.0.15", Load: MachineLoad{2, 0.5, 0.25},
		Faults: []FaultReport{{Kind: string(RedisDown), AtS: outageFrom.Seconds(), ForS: (outageTo - outageFrom).Seconds(), AwayS: (outageTo - outageFrom).Seconds(), DetectMS: -1, HealMS: -1}},
	}
	for n := 0; ; n++ {
		d := time.Duration(n) * every
		if d >= trialEnd {
			return t
		}
		e := Event{Due: begin.Add(d), Target: n % 2, Wait: 5 * time.Millisecond, Late: time.Millisecond, Told: -1}
		if n/2%2 == 1 {
			e.Kind, e.Reason = Refused, "requests"
		}
		for _, s := range scripts {
			s(d, e.Target, &e)
		}
		e.End = e.decided().Add(30 * time.Millisecond)
		t.Events = append(t.Events, e)
		if e.Kind == Admitted {
			t.Starts = append(t.Starts, Arrival{At: e.decided().Sub(begin), Tenant: "a"})
		}
	}
}

// closed is a replica that refuses for want of a store between two instants.
func closed(of int, from, to time.Duration) script {
	return func(d time.Duration, target int, e *Event) {
		if target == of && d >= from && d < to {
			e.Kind, e.Reason, e.Degraded = Refused, reasonUnavailable, ""
		}
	}
}

// open is one that admits everything, marked.
func open(of int, from, to time.Duration) script {
	return func(d time.Duration, target int, e *Event) {
		if target == of && d >= from && d < to {
			e.Kind, e.Reason, e.Degraded = Admitted, "", "open"
		}
	}
}

// waiting makes requests wait.
func waiting(from, to, wait time.Duration) script {
	return func(d time.Duration, _ int, e *Event) {
		if d >= from && d < to {
			e.Wait = wait
		}
	}
}

// late is a driver that sends requests too late.
func late(from, to, by time.Duration) script {
	return func(d time.Duration, _ int, e *Event) {
		if d >= from && d < to {
			e.Wait, e.Late = e.Wait+by, by
		}
	}
}

const ms = time.Millisecond

func TestOutageIsJudged(t *testing.T) {
	both := func(s func(int, time.Duration, time.Duration) script, from, to time.Duration) []script {
		return []script{s(0, from, to), s(1, from, to)}
	}
	for _, c := range []struct {
		name    string
		scripts []script
		want    Outage // of the fields that are compared below
		detect  float64
		heal    float64
	}{
		{"closed at once, healed at once",
			both(closed, outageFrom, outageTo),
			Outage{Unavailable: 80, FirstPolicyMS: 5, AllPolicyMS: 55}, 55, 55},
		{"open", both(open, outageFrom, outageTo),
			Outage{Degraded: 80, Admitted: 80, AdmittedLate: 69, LimitRatio: 2, OverAdmissionRatio: round(80.0/42, 4), FirstPolicyMS: 5, AllPolicyMS: 55}, 55, 55},
		// 15 requests wait: those due from 4.0 to 4.7 s, one replica each 100 ms.
		{"waits for the store in the first 0.7 s",
			append(both(closed, outageFrom, outageTo), waiting(outageFrom, outageFrom+700*ms, 50*ms)),
			Outage{Unavailable: 80, FirstPolicyMS: 50, AllPolicyMS: 100, LastWaitMS: 700, AddedFirstP99MS: 45}, 700, 55},
		// A stall of the machine is no wait for the store.
		{"a stall later on",
			append(both(closed, outageFrom, outageTo), waiting(outageFrom+2*time.Second, outageFrom+2100*ms, 90*ms)),
			Outage{Unavailable: 80, FirstPolicyMS: 5, AllPolicyMS: 55, AddedRestP99MS: 85}, 55, 55},
		// Nor is one of the driver.
		{"a driver that is late from the begin",
			append(both(closed, outageFrom, outageTo), late(outageFrom, outageFrom+time.Second, 90*ms)),
			Outage{Unavailable: 80, FirstPolicyMS: 95, AllPolicyMS: 145, AddedFirstP99MS: 90, DriverLateP99MS: 90, DriverLateFirstP99MS: 90}, 145, 55},
		// Its first answer by policy is due at 4.25 s.
		{"one replica notices late",
			[]script{closed(0, outageFrom, outageTo), closed(1, outageFrom+250*ms, outageTo)},
			Outage{Unavailable: 78, Admitted: 1, LimitRatio: 0.025, OverAdmissionRatio: round(1.0/42, 4), Refused: 1, FirstPolicyMS: 5, AllPolicyMS: 255}, 255, 55},
		{"one never notices",
			[]script{closed(0, outageFrom, outageTo)},
			Outage{Unavailable: 40, Admitted: 20, AdmittedLate: 17, LimitRatio: 0.5, OverAdmissionRatio: round(20.0/42, 4), Refused: 20, FirstPolicyMS: 5, AllPolicyMS: -1}, -1, 55},
		// One replica refuses until 9.5 s; of its requests, that due at 9.6 s is
		// the first admitted.
		{"one heals late",
			[]script{closed(0, outageFrom, outageTo+1500*ms), closed(1, outageFrom, outageTo)},
			Outage{Unavailable: 80, FirstPolicyMS: 5, AllPolicyMS: 55, RecoveredMS: 1605}, 55, 1605},
		{"one never heals",
			[]script{closed(0, outageFrom, outageTo), closed(1, outageFrom, trialEnd)},
			Outage{Unavailable: 80, FirstPolicyMS: 5, AllPolicyMS: 55, RecoveredMS: -1}, 55, -1},
		// Well for 0.5 s, then refusing again until 9 s.
		{"a relapse soon after puts healing off",
			[]script{closed(0, outageFrom, outageTo), closed(0, outageTo+500*ms, outageTo+time.Second), closed(1, outageFrom, outageTo)},
			Outage{Unavailable: 80, FirstPolicyMS: 5, AllPolicyMS: 55}, 55, 1005},
		{"a relapse much later is a stray, and so is one before",
			[]script{closed(0, time.Second, time.Second+ms), closed(0, outageFrom, outageTo), closed(0, outageTo+2*time.Second, outageTo+2*time.Second+ms), closed(1, outageFrom, outageTo)},
			Outage{Unavailable: 80, FirstPolicyMS: 5, AllPolicyMS: 55, Strays: 2}, 55, 55},
		{"nothing happens", nil,
			Outage{Admitted: 40, AdmittedLate: 34, LimitRatio: 1, OverAdmissionRatio: round(40.0/42, 4), Refused: 40, FirstPolicyMS: -1, AllPolicyMS: -1}, -1, 55},
	} {
		f := outageTrial("fail_closed", c.scripts...).Run().Faults[0]
		got := *f.Outage
		c.want.Offered, c.want.BaseP99MS = 80, 5
		c.want.DriverLateP99MS, c.want.DriverLateRestP99MS = cmp.Or(c.want.DriverLateP99MS, 1), 1
		c.want.DriverLateFirstP99MS = cmp.Or(c.want.DriverLateFirstP99MS, 1)
		c.want.RecoveredMS = cmp.Or(c.want.RecoveredMS, 55)
		if got != c.want {
			t.Errorf("%s:\n%+v, want\n%+v", c.name, got, c.want)
		}
		if math.Abs(f.DetectMS-c.detect) > 1e-6 || math.Abs(f.HealMS-c.heal) > 1e-6 {
			t.Errorf("%s: detected after %v ms, healed after %v; want %v and %v", c.name, f.DetectMS, f.HealMS, c.detect, c.heal)
		}
	}
}

func TestAnswersOfTheDead(t *testing.T) {
	// Requests that are never answered are neither decided nor waits.
	fail := func(d time.Duration, _ int, e *Event) {
		if d >= outageFrom && d < outageTo {
			e.Kind, e.Reason, e.Wait = Failed, "timeout", 0
		}
	}
	f := outageTrial("fail_open", fail).Run().Faults[0]
	if o := f.Outage; o.Failed != 80 || o.Offered != 80 || f.DetectMS != -1 || o.AddedFirstP99MS != -5 {
		t.Errorf("%+v", o)
	}
}

func TestCrashIsJudged(t *testing.T) {
	trial := outageTrial("fail_closed", func(d time.Duration, target int, e *Event) {
		if target == 1 && d >= outageFrom && d < outageFrom+time.Second {
			e.Kind, e.Reason, e.Wait = Failed, "connection", 0
		}
	})
	trial.Faults[0].Kind, trial.Faults[0].DetectMS, trial.Faults[0].HealMS = string(Crash), 3000, 400
	run := trial.Run()
	f := run.Faults[0]
	if f.DetectMS != 3000 || f.HealMS != 400 || f.Outage.Failed != 10 || f.Outage.AllPolicyMS != -1 {
		t.Errorf("%+v, %+v", f, f.Outage)
	}
	if err := (Chaos{run}).Check(); err != nil {
		t.Errorf("a replica is not the store: %v", err)
	}
}

// exampleChaos has one cell that keeps what is promised, and two that do not.
func exampleChaos() Chaos {
	open := outageTrial("fail_open", open(0, outageFrom, outageTo), open(1, outageFrom, outageTo), waiting(outageFrom, outageFrom+500*ms, 50*ms))
	deaf := outageTrial("fail_closed", closed(0, outageFrom, outageTo))
	greedy := outageTrial("local_share", open0(outageFrom, trialEnd))
	for i := range greedy.Events {
		greedy.Events[i].Late = 20 * ms
	}
	return Chaos{open.Run(), deaf.Run(), greedy.Run()}
}

// open0 is a fleet that admits everything, marked as a local share.
func open0(from, to time.Duration) script {
	return func(d time.Duration, _ int, e *Event) {
		if d >= from && d < to {
			e.Kind, e.Reason, e.Degraded = Admitted, "", "local"
		}
	}
}

func TestChaosGolden(t *testing.T) {
	c := exampleChaos()
	var text, md bytes.Buffer
	if err := errorsOf(c.WriteText(&text), c.WriteMarkdown(&md, "2000-01-01")); err != nil {
		t.Fatal(err)
	}
	golden(t, "chaos.txt", text.Bytes())
	golden(t, "chaos.md", md.Bytes())
	var data bytes.Buffer
	if err := c.WriteJSON(&data); err != nil {
		t.Fatal(err)
	}
	var byCell map[string]Run
	if err := json.Unmarshal(data.Bytes(), &byCell); err != nil || byCell["redis_down/fail_open"].Faults[0].Outage.Degraded != 80 {
		t.Errorf("%v in %s", err, &data)
	}
	// The same rows are part of every report of runs.
	var page, doc bytes.Buffer
	runs := Comparison(c[:1])
	if err := errorsOf(runs.WriteHTML(&page), runs.WriteMarkdown(&doc)); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*bytes.Buffer{"page": &page, "document": &doc} {
		if !strings.Contains(b.String(), "While it was away") || !strings.Contains(b.String(), "fail_open") {
			t.Errorf("the %s does not show the outage", name)
		}
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestLateDrivers(t *testing.T) {
	c := exampleChaos()
	for i, want := range []float64{1, 1, 20} {
		if got := c[i].Lateness(); got != want || c[i].Late() != (want > lateBound) {
			t.Errorf("%s: late by %v, want %v", c[i].Scenario, got, want)
		}
	}
}

func TestChaosPromises(t *testing.T) {
	c := exampleChaos()
	if err := c[:1].Check(); err != nil {
		t.Errorf("fail_open breaks nothing by admitting all: %v", err)
	}
	err := c.Check()
	for _, want := range []string{
		"redis_down/fail_closed: admitted once the outage must be known: 17, not 0",
		"redis_down/local_share: admitted ÷ (burst + limit): 1.905, not in 0..1.2",
		"redis_down/local_share: time to the first admission by the store in ms (-1: never): -1, not at least 0",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	missed := c.Missed()
	for _, want := range []string{
		"redis_down/fail_closed: time to detect in ms: -1, not in 0..500",
		"redis_down/local_share: admitted ÷ limit: 2, not in 0.7..1.2 *",
	} {
		if !slices.Contains(missed, want) {
			t.Errorf("no %q in %q", want, missed)
		}
	}
}

func TestSplice(t *testing.T) {
	c := exampleChaos()
	document := "before\n" + chaosBegin + "\nold\n" + chaosEnd + "\nafter\n"
	once, err := c.Splice([]byte(document), "2000-01-01")
	if err != nil {
		t.Fatal(err)
	}
	if s := string(once); !strings.HasPrefix(s, "before\n"+chaosBegin+"\n|") || !strings.HasSuffix(s, "\n"+chaosEnd+"\nafter\n") || strings.Contains(s, "old") {
		t.Errorf("%s", s)
	}
	if twice, err := c.Splice(once, "2000-01-01"); err != nil || !bytes.Equal(once, twice) {
		t.Errorf("a second time, %v:\n%s", err, twice)
	}
	if _, err := c.Splice([]byte("no marks"), ""); err == nil {
		t.Error("a document without marks is taken")
	}
}

func TestCellsAreScenarios(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range ChaosCells() {
		s := c.Scenario(false)
		if seen[c.Name()] || !s.OwnsRedis() || !s.NeedsProcesses() || s.Name != c.Name() || s.OnOutage != c.Policy {
			t.Errorf("%+v", s)
		}
		seen[c.Name()] = true
		if total := s.Warm + s.Measured; total > time.Minute {
			t.Errorf("%s takes %v", c.Name(), total)
		}
	}
	if len(seen) != 18 {
		t.Errorf("%d cells", len(seen))
	}
	for _, c := range QuickCells {
		quick := c.Scenario(true)
		f := quick.Faults[0]
		if !seen[c.Name()] || quick.Measured >= c.Scenario(false).Measured || f.At*quick.Measured.Seconds() != 1 {
			t.Errorf("%s: %+v", c.Name(), quick)
		}
	}
	for _, s := range Scenarios {
		if want := fmt.Sprint(s.Name == "redis-outage" || s.Name == "redis-hang" || s.Name == "replica-crash"); want != fmt.Sprint(s.NeedsProcesses()) {
			t.Errorf("%s needs processes: %v", s.Name, s.NeedsProcesses())
		}
	}
}
