package throttle

import (
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
)

// Class is how urgent a start is.
type Class uint8

const (
	Interactive Class = iota // somebody waits for it; it may use the reserve
	Batch                    // whenever there is room above the reserve
)

// Cost is what a start is expected to use, besides one request.
type Cost struct {
	Input  int64 // tokens of the prompt, ≥ 0
	Output int64 // tokens of the completion, ≥ 0
}

// of is the cost in one unit.
func (c Cost) of(u quota.Unit) float64 {
	switch u {
	case quota.Requests:
		return 1
	case quota.Tokens:
		return float64(c.Input + c.Output)
	case quota.InputTokens:
		return float64(c.Input)
	case quota.OutputTokens:
		return float64(c.Output)
	}
	return 0
}

// Config sets a Throttle up. The zero Config has every default.
type Config struct {
	// Reserve is the part of each limit that batch work leaves alone, 0 to 0.9.
	// Zero means a fifth; negative means none.
	Reserve float64
}

// DefaultReserve is the reserve of a zero Config.
const DefaultReserve = 0.2

// Why says what a start has to wait for. The set is closed: it is a metric label.
type Why string

const (
	WhyPaused   Why = "paused"   // the provider refused; see Verdict.Wait
	WhyOverload Why = "overload" // the provider is overloaded
	WhyProbe    Why = "probe"    // somebody else tries first, after a pause
	WhyStopped  Why = "stopped"  // the account needs its owner
	WhyFirst    Why = "first"    // too many wait for the first responses
	WhyLevel    Why = "level"    // too little is left
	WhyReserve  Why = "reserve"  // what is left is for interactive work
	WhyPace     Why = "pace"     // a moment, so that starts are spread
	WhyRate     Why = "rate"     // the rate of a provider that says nothing
)

// Whys lists every Why, for documentation and metrics.
var Whys = [...]Why{
	WhyPaused, WhyOverload, WhyProbe, WhyStopped, WhyFirst, WhyLevel, WhyReserve, WhyPace, WhyRate,
}

// Verdict is the answer to Ask.
type Verdict struct {
	OK bool
	// Wait is when to ask again, > 0 unless OK. An answer or a merge may change it
	// any time before.
	Wait time.Duration
	Why  Why
}

const (
	burstPart    = 0.05                   // of a limit, at once
	spentBy      = 0.4                    // part of a window by which batch work has had its share
	lag          = 1.2                    // seconds that answers take to tell what is left
	maxLanes     = 32                     // quotas of one account; providers have up to eight
	forgetAfter  = 10 * time.Minute       // a quota that nobody has told of; at least two periods
	soonest      = 10 * time.Millisecond  // nobody is told a shorter wait
	firstWindow  = 4                      // starts before the first response; each answer doubles it
	slowStart    = 8                      // answers after which a silent provider is open to all
	calm         = time.Second            // after a reset, half the pace
	rampPart     = 0.05                   // of a period, to the full pace
	probeTimeout = 2 * time.Second        // for others to wait for a probe
	leastPause   = 100 * time.Millisecond // after a refusal that says "at once"
	firstPause   = time.Second            // after a refusal without a time
	mostPause    = time.Minute            // of a refusal without a time
	dayPause     = 15 * time.Minute       // when the day's quota is used up
	overloadTime = 2 * time.Second        // after an overload without a time
	stopProbe    = time.Minute            // between tries of a stopped account
	agree        = 50 * time.Millisecond  // how far instants of one replica may differ
	sameEnd      = 250 * time.Millisecond // how far the end of one pause may, at two replicas
)

// Throttle paces the starts of one replica at one account. It is not safe for
// concurrent use.
type Throttle struct {
	reserve  float64
	replicas float64 // ≥ 1
	leads    bool    // sends the probes of the fleet

	lanes    map[Key]*lane
	kinds    map[Key]*kind
	own      State         // what this replica was told itself
	open     map[Start]int // started, and not answered yet
	answered int64
	minTrip  time.Duration // the quickest answer so far

	until    time.Time // no start before: quota
	overload time.Time // no start before: overload
	probed   time.Time // the pause that ended here is over, somebody has tried
	probing  time.Time // since when a probe of ours is under way; zero: none
	step     time.Duration
	stop     time.Time // the account was refused for good; over once probed is later
	tryAt    time.Time // of a stopped account

	silent silent
}

// Start is one permitted start, to be ended by Answered or Failed, once.
type Start struct {
	at    time.Time
	cost  Cost
	id    int64
	probe bool
}

// New returns a Throttle that knows nothing yet, of a replica that is alone.
func New(c Config) *Throttle {
	t := &Throttle{
		replicas: 1, leads: true, step: firstPause, own: State{Levels: map[Key]Level{}},
		lanes: map[Key]*lane{}, kinds: map[Key]*kind{}, open: map[Start]int{},
	}
	t.Configure(c)
	return t
}

// Configure replaces the configuration. What is known stays.
func (t *Throttle) Configure(c Config) {
	t.reserve = min(c.Reserve, 0.9)
	switch {
	case c.Reserve == 0:
		t.reserve = DefaultReserve
	case c.Reserve < 0:
		t.reserve = 0
	}
}

// Fleet says among how many replicas the quota is divided, at least 1, and whether
// this one sends the probes. Two leaders send two probes, none makes everybody
// wait for the time-out: neither breaks anything.
func (t *Throttle) Fleet(replicas int, leads bool) {
	t.replicas, t.leads = float64(max(1, replicas)), leads
}

// Ask asks to start now. If the verdict is OK, the start counts from here on.
func (t *Throttle) Ask(now time.Time, c Cost, class Class) (Start, Verdict) {
	if v, closed := t.gate(now); closed {
		return Start{}, v
	}
	probe := t.needsProbe()
	if !probe {
		if v := t.room(now, c, class); !v.OK {
			v.Wait = max(v.Wait, soonest)
			return Start{}, v
		}
	}
	return t.begin(now, c, probe), Verdict{OK: true}
}

// begin counts a start.
func (t *Throttle) begin(now time.Time, c Cost, probe bool) Start {
	s := Start{at: now, cost: c, id: t.silent.started + 1, probe: probe}
	t.silent.count(now)
	t.open[s]++
	if probe {
		t.probing = now
	}
	for k, l := range t.lanes {
		l.spend(c.of(k.Unit))
	}
	return s
}

// gate answers while nothing at all may start.
func (t *Throttle) gate(now time.Time) (Verdict, bool) {
	switch {
	case t.stopped() && now.Before(t.tryAt):
		return Verdict{Wait: t.tryAt.Sub(now), Why: WhyStopped}, true
	case now.Before(t.until):
		return Verdict{Wait: t.until.Sub(now), Why: WhyPaused}, true
	case now.Before(t.overload):
		return Verdict{Wait: t.overload.Sub(now), Why: WhyOverload}, true
	case t.stopped() && !t.leads && now.Sub(t.tryAt) < probeTimeout:
		return Verdict{Wait: probeTimeout - now.Sub(t.tryAt), Why: WhyProbe}, true
	case t.stopped():
		t.tryAt = now.Add(stopProbe) // one try
		return Verdict{}, false
	case !t.unproven():
		return Verdict{}, false
	case !t.probing.IsZero() && now.Sub(t.probing) < probeTimeout:
		return Verdict{Wait: probeTimeout - now.Sub(t.probing), Why: WhyProbe}, true
	case !t.leads && now.Sub(t.until) < probeTimeout:
		return Verdict{Wait: probeTimeout - now.Sub(t.until), Why: WhyProbe}, true
	}
	return Verdict{}, false
}

// unproven reports whether a pause is over that nobody has tried the end of.
func (t *Throttle) unproven() bool {
	return !t.until.IsZero() && t.probed.Before(t.until.Add(-sameEnd))
}

// stopped reports whether the account needs its owner.
func (t *Throttle) stopped() bool { return t.stop.After(t.probed) }

// needsProbe reports whether the next start is the probe.
func (t *Throttle) needsProbe() bool { return t.unproven() || t.stopped() }

// room looks at everything that limits a start.
func (t *Throttle) room(now time.Time, c Cost, class Class) Verdict {
	switch {
	case len(t.lanes) > 0:
	case t.answered < slowStart && len(t.open) >= firstWindow<<t.answered:
		return Verdict{Wait: 10 * soonest, Why: WhyFirst}
	default:
		return t.silent.room(now)
	}
	worst := Verdict{OK: true}
	for k, l := range t.lanes {
		cost := c.of(k.Unit)
		if cost == 0 {
			continue
		}
		if v := t.laneRoom(now, k, l, cost, class); !v.OK && (worst.OK || v.Wait > worst.Wait) {
			worst = v
		}
	}
	return worst
}

// under is what was started here and is not counted in what is known of l.
func (t *Throttle) under(k Key, l *lane) (cost float64) {
	for s := range t.open {
		if s.at.Add(t.minTrip / 2).After(l.Seen.Add(-agree)) {
			cost += s.cost.of(k.Unit)
		}
	}
	return cost
}

// laneRoom looks at one quota: is enough of this replica's share left, and is it
// time by the pace.
func (t *Throttle) laneRoom(now time.Time, k Key, l *lane, cost float64, class Class) Verdict {
	floor := t.reserve * float64(l.Limit)
	l.flow(now, t.replicas, floor)
	opened := t.under(k, l)
	left := l.At(now)
	// Everybody stops short of nothing by a start each. What costs more than a
	// share ever holds goes when the share is whole.
	share := left/t.replicas - opened
	// Arrivals of interactive work are uneven, so one may be ahead of the share by a
	// start while there is enough for everybody to be.
	if class == Interactive && t.replicas > 1 && left > 2*cost*t.replicas {
		share += cost
	}
	if need := min(cost, 0.9*float64(l.Limit)/t.replicas); share < need {
		return Verdict{Wait: l.fills(now, (need-share)*t.replicas), Why: WhyLevel}
	}
	// The reserve has room for that; others are taken to have as much under way.
	need := floor + min(cost, 0.9*float64(l.Limit)-floor)
	if missing := need - left + opened*t.replicas; class == Batch && missing > 0 {
		return Verdict{Wait: l.fills(now, missing), Why: WhyReserve}
	}
	if wait := l.due(now, cost, class, t.replicas); wait > 0 {
		return Verdict{Wait: wait, Why: WhyPace}
	}
	return Verdict{OK: true}
}

// Status is what is known of one quota, for people and metrics.
type Status struct {
	Key
	Limit   int64
	Left    float64       // known to be left, less what is under way here
	Reserve float64       // of it, for interactive work
	Age     time.Duration // of what is known
}

// Status lists the quotas, in no order.
func (t *Throttle) Status(now time.Time) []Status {
	var all []Status
	for k, l := range t.lanes {
		all = append(all, Status{
			Key: k, Limit: l.Limit, Left: l.At(now) - t.under(k, l),
			Reserve: t.reserve * float64(l.Limit), Age: max(0, now.Sub(l.Seen)),
		})
	}
	return all
}

// Idle reports whether nothing is under way or in force.
func (t *Throttle) Idle(now time.Time) bool {
	return len(t.open) == 0 && !t.stopped() && !now.Before(t.until) && !now.Before(t.overload)
}

// Pause says why nothing starts at now, and until when: WhyPaused, WhyOverload or
// WhyStopped. Empty: it may.
func (t *Throttle) Pause(now time.Time) (why Why, until time.Time) {
	until = t.Paused()
	switch {
	case t.stopped():
		return WhyStopped, until
	case !until.After(now):
		return "", time.Time{}
	case t.overload.After(t.until):
		return WhyOverload, until
	}
	return WhyPaused, until
}

// Paused is until when nothing starts; the past if it does.
func (t *Throttle) Paused() time.Time {
	if t.stopped() {
		return latest(t.tryAt, t.until)
	}
	return latest(t.until, t.overload)
}
