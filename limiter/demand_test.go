package limiter

import (
	"testing"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter/fairq"
)

// Which of several refusals is named, and what the caller is told to wait.
func TestWhichRefusalIsNamed(t *testing.T) {
	rate := &Rate{Limit: 10, Per: time.Second, Burst: 10}
	all := Rule{Requests: rate, Tokens: rate, MaxInFlight: 1}
	cfg := Config{Limits: map[Dimension]Limit{
		Global: {Rule: Rule{Requests: rate}}, Client: {Rule: Rule{Requests: rate, MaxInFlight: 1}},
		APIKey: {Rule: all}, User: {Rule: all}, Model: {Rule: Rule{Requests: rate, Tokens: rate}},
	}}
	d := cfg.demandOf(Request{Identities: Identities{Client: "c", APIKey: "k", User: "u", Model: "m"}, Tokens: 3})
	type key struct {
		d Dimension
		c Class
	}
	const ms = time.Millisecond
	cases := []struct {
		name    string
		waits   map[key]time.Duration // InFlight: any wait means full
		dim     Dimension
		class   Class
		reason  Reason
		retry   time.Duration
		waitAt  Dimension // where it may wait in line, "" for nowhere
		tenants time.Duration
	}{
		{"one bucket", map[key]time.Duration{{User, Requests}: 5 * ms}, User, Requests, ReasonRequests, 5 * ms, User, 0},
		{"the longest wait of a class", map[key]time.Duration{{User, Requests}: 5 * ms, {APIKey, Requests}: 9 * ms, {Model, Requests}: 7 * ms},
			APIKey, Requests, ReasonRequests, 9 * ms, Model, 9 * ms},
		{"class before wait, wait of all", map[key]time.Duration{{User, Requests}: 5 * ms, {Model, Tokens}: 90 * ms},
			User, Requests, ReasonRequests, 90 * ms, "", 0},
		{"tokens before in-flight", map[key]time.Duration{{User, InFlight}: 1, {APIKey, Tokens}: 4 * ms},
			APIKey, Tokens, ReasonTokens, time.Second, "", 0},
		{"before authentication first", map[key]time.Duration{{Client, Requests}: 1 * ms, {User, Requests}: 50 * ms},
			Client, Requests, ReasonRequests, 50 * ms, "", 0},
		{"global never queues", map[key]time.Duration{{Global, Requests}: 1 * ms}, Global, Requests, ReasonRequests, 1 * ms, "", 0},
		{"in-flight alone", map[key]time.Duration{{APIKey, InFlight}: 1}, APIKey, InFlight, ReasonInFlight, time.Second, "", 0},
		{"never outlasts everything", map[key]time.Duration{{User, Tokens}: Never, {APIKey, Tokens}: 4 * ms},
			User, Tokens, ReasonExceedsBurst, Never, "", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := Verdict{Charges: make([]ChargeVerdict, len(d.take.Charges)), Full: make([]bool, len(d.take.Slots))}
			set := 0
			for i, charge := range d.take.Charges {
				if wait, ok := c.waits[key{charge.Bucket.Dimension, charge.Bucket.Class}]; ok {
					v.Charges[i].Wait = wait
					set++
				}
			}
			for i, slot := range d.take.Slots {
				if _, ok := c.waits[key{slot.Slot.Dimension, InFlight}]; ok {
					v.Full[i] = true
					set++
				}
			}
			if set != len(c.waits) {
				t.Fatalf("only %d of %v apply", set, c.waits)
			}
			got := d.refusal(v)
			if got.Dimension != c.dim || got.Class != c.class || got.Reason != c.reason || got.RetryAfter != c.retry {
				t.Errorf("refusal %+v", got)
			}
			b, wait, narrower, ok := d.contended(v)
			if ok != (c.waitAt != "") || (ok && b.Dimension != c.waitAt) || narrower != c.tenants {
				t.Errorf("may wait: %v at %v for %v, own buckets %v", ok, b, wait, narrower)
			}
		})
	}
}

func TestDemandTakesOverridesAndSkipsMissingIdentities(t *testing.T) {
	own := &Rate{Limit: 1, Per: time.Hour, Burst: 7}
	cfg := Config{Limits: map[Dimension]Limit{
		User: {Rule: Rule{MaxInFlight: 4}, Overrides: map[ID]Rule{"vip": {Requests: own}, "free": {}}},
		Team: {Rule: Rule{MaxInFlight: 9}},
	}}
	if d := cfg.demandOf(Request{Identities: Identities{User: "vip"}}); len(d.take.Slots) != 0 || len(d.take.Charges) != 1 || d.take.Charges[0].Rate != *own {
		t.Errorf("an override replaces the whole rule: %+v", d.take)
	}
	if d := cfg.demandOf(Request{Identities: Identities{User: "free"}}); !d.unlimited() {
		t.Errorf("an empty override lifts the limit: %+v", d.take)
	}
	d := cfg.demandOf(Request{Identities: Identities{User: "x", Team: "t"}})
	if len(d.take.Slots) != 2 || d.take.Slots[1] != (Slot{SlotID{Dimension: Team, ID: "t"}, 9}) {
		t.Errorf("%+v", d.take)
	}
}

// A step of an admitted request is charged to its model and to nothing else.
func TestDemandOfAStep(t *testing.T) {
	rule := Rule{Requests: &Rate{Limit: 1, Per: time.Hour, Burst: 1}, MaxInFlight: 1}
	cfg := Config{Limits: map[Dimension]Limit{Global: {Rule: rule}, Client: {Rule: rule}, User: {Rule: rule}, Model: {Rule: Rule{Requests: rule.Requests}}}}
	d := cfg.demandOf(Request{Identities: Identities{Client: "c", User: "u", Model: "m"}, Step: true})
	if len(d.take.Slots) != 0 || len(d.take.Charges) != 1 || d.take.Charges[0].Bucket.ID != "m" {
		t.Errorf("it takes %+v", d.take)
	}
}

func TestHashTellsDimensionsApart(t *testing.T) {
	if Hash(User, "x") == Hash(Team, "x") {
		t.Error("one text in two dimensions has one ID")
	}
	if got := Hash(User, "x"); len(got) != 32 || got != Hash(User, "x") {
		t.Errorf("ID %q", got)
	}
	if Hash(User, "") != "" {
		t.Error("no identity has an ID")
	}
}

func TestHeadwayIsTheMeanGapAndSeesStalls(t *testing.T) {
	var h headway
	now := time.Unix(0, 0)
	h.grant(now, false)
	now = now.Add(time.Hour) // idle: nobody waited, so this is no gap
	h.grant(now, true)
	if got := h.spacing(now); got != 0 {
		t.Errorf("spacing %v after one grant", got)
	}
	for i := range 400 { // skewed gaps of mean 10 ms
		gap := 2 * time.Millisecond
		if i%5 == 0 {
			gap = 42 * time.Millisecond
		}
		now = now.Add(gap)
		h.grant(now, true)
	}
	if got := h.spacing(now); got < 7*time.Millisecond || got > 13*time.Millisecond {
		t.Errorf("spacing %v, want about the mean of 10ms", got)
	}
	if got := h.spacing(now.Add(time.Second)); got != time.Second {
		t.Errorf("spacing %v in a stall of 1s", got)
	}
}

// Who skips the wait line does not mind that others wait for their turn.
func TestSkipQueueTakesOutOfTurn(t *testing.T) {
	cfg := Config{
		Limits: map[Dimension]Limit{Model: {Rule: Rule{Requests: &Rate{Limit: 1, Per: time.Second, Burst: 1}}}},
		Fair:   FairConfig{Enabled: true, Scope: FairExact, TenantDimension: User},
	}
	for skip, want := range map[Skip]bool{0: true, SkipTokens: true, SkipQueue: false, SkipQueue | SkipTokens: false} {
		d := cfg.demandOf(Request{Identities: Identities{User: "u", Model: "m"}, Skip: skip})
		if got := d.take.Charges[0].InTurn; got != want {
			t.Errorf("with %b skipped in turn is %v", skip, got)
		}
	}
}

// A bucket that takes longer to fill than a Duration can tell takes very long, and
// not less than no time.
func TestVeryLongWaits(t *testing.T) {
	slow := Rate{Limit: 1, Per: 24 * time.Hour, Burst: maxAmount}
	if got := slow.level(0).Reset; got != longest {
		t.Errorf("a level is whole again in %v", got)
	}
	m := Met{Rate: slow, Cost: maxAmount, Level: &Level{Rate: slow}}
	if got := m.Missing(); got != longest {
		t.Errorf("a cost is covered in %v", got)
	}
	var q fifo
	for i := range 2 {
		w := newWaiter(Request{}, &demand{tokens: maxAmount}, Tenant{}, time.Now(), time.Now())
		w.came, w.ahead, w.line = uint64(i), i, &line{queue: &q, bucket: BucketID{Dimension: User, Class: Tokens}}
		w.demand.charge(w.line.bucket, slow, maxAmount)
		q.queue = append(q.queue, w)
	}
	s := &lines{manner: deferral, fleet: fleet.Solo("a")}
	if got := s.estimateLocked(q.queue[1], time.Now()); got < longest {
		t.Errorf("the second in line waits %v", got)
	}
	turns := turns{order: fairq.NewTagged[*waiter](), rate: slow, pace: pace{perSec: 1e-12, latest: 1}}
	w := newWaiter(Request{}, &demand{}, Tenant{ID: "a", Weight: 1}, time.Now(), time.Now())
	turns.order.Push(&w.bid, "a", 1, 1)
	turns.order.Learn("a", 1e9, 1)
	if got := turns.patience(&w.bid); got != maxPatience {
		t.Errorf("it rests for %v", got)
	}
	gate := leads{accounts: newAccounts(), perSec: 1e-9}
	gate.accounts.weights = 1000
	if got := gate.delay(1e6, 1); got != maxGate {
		t.Errorf("a tenant far ahead rests for %v", got)
	}
}
