package limiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
)

func bucket(d limiter.Dimension, who string) limiter.BucketID {
	return limiter.BucketID{Dimension: d, ID: limiter.Hash(d, who)}
}

// decide must not fail.
func (r *rig) decide(asks ...limiter.Ask) limiter.Decision {
	r.t.Helper()
	d, err := r.Decide(context.Background(), asks)
	if err != nil {
		r.t.Fatalf("Decide: %v", err)
	}
	return d
}

func immediate() limiter.Config {
	return limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{
		limiter.User: {Rule: limiter.Rule{Requests: perSecond(3)}},
		limiter.Team: {Rule: limiter.Rule{Requests: perSecond(10), Tokens: perSecond(100)}},
	}}
}

func TestDecideTakesAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, immediate())
		user, team := limiter.Ask{Bucket: bucket(limiter.User, "u"), Cost: 2}, limiter.Ask{Bucket: bucket(limiter.Team, "t"), Cost: 2}
		if d := r.decide(user, team); !d.OK || d.Answers[0].Level.Remaining != 1 || d.Answers[1].Level.Remaining != 8 {
			t.Fatalf("first: %+v", d)
		}
		d := r.decide(user, team)
		if d.OK || !d.Answers[0].Refused || d.Answers[1].Refused {
			t.Fatalf("the user's limit alone refuses: %+v", d)
		}
		if got := d.Answers[0].RetryAfter; got != time.Second/3+time.Nanosecond*667 && got.Round(time.Millisecond) != 333*time.Millisecond {
			t.Errorf("retry after %v, want a third of a second", got)
		}
		if got := d.Answers[1].Level.Remaining; got != 8 {
			t.Errorf("the team has %d left of 8: a refusal took something", got)
		}
		time.Sleep(d.Answers[0].RetryAfter)
		if d := r.decide(user, team); !d.OK {
			t.Errorf("refused at the instant that was told: %+v", d)
		}
	})
}

func TestDecideTakesAsksForOneBucketTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, immediate())
		user := limiter.Ask{Bucket: bucket(limiter.User, "u"), Cost: 2}
		if d := r.decide(user, user); d.OK || !d.Answers[0].Refused || !d.Answers[1].Refused {
			t.Errorf("twice 2 of 3: %+v", d)
		}
		user.Cost = 1
		if d := r.decide(user, user); !d.OK || d.Answers[1].Level.Remaining != 1 {
			t.Errorf("twice 1 of 3: %+v", d)
		}
	})
}

func TestDecideWithRatesOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, immediate())
		own := limiter.Ask{Bucket: bucket(limiter.Descriptor, "slow"), Cost: 1, Rate: &limiter.Rate{Limit: 1, Per: time.Hour, Burst: 1}}
		free := limiter.Ask{Bucket: bucket(limiter.APIKey, "k"), Cost: 1 << 30} // no limit of that dimension
		if d := r.decide(own, free); !d.OK || !d.Answers[0].Limited || d.Answers[1].Limited {
			t.Errorf("first: %+v", d)
		}
		if d := r.decide(own, free); d.OK || d.Answers[0].RetryAfter != time.Hour {
			t.Errorf("second: %+v", d)
		}
		blocked := limiter.Ask{Bucket: bucket(limiter.User, "u"), Cost: 1, Rate: &limiter.Rate{Per: time.Second}}
		if d := r.decide(blocked); d.OK || d.Answers[0].Reason != limiter.ReasonBlocked || d.Answers[0].RetryAfter != limiter.Never {
			t.Errorf("limit 0: %+v", d)
		}
		large := limiter.Ask{Bucket: bucket(limiter.User, "v"), Cost: 4}
		if d := r.decide(large); d.OK || d.Answers[0].Reason != limiter.ReasonExceedsBurst {
			t.Errorf("4 of a burst of 3: %+v", d)
		}
		if _, err := r.Decide(context.Background(), []limiter.Ask{{Bucket: large.Bucket, Cost: -1}}); err == nil {
			t.Error("a negative cost is taken for granted")
		}
	})
}

func TestCorrect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, immediate())
		tokens := limiter.BucketID{Dimension: limiter.Team, Class: limiter.Tokens, ID: limiter.Hash(limiter.Team, "t")}
		left := func() int64 { return r.decide(limiter.Ask{Bucket: tokens}).Answers[0].Level.Remaining }
		r.decide(limiter.Ask{Bucket: tokens, Cost: 60})
		if err := r.Correct([]limiter.Ask{{Bucket: tokens, Cost: 20}}, true); err != nil || left() != 60 {
			t.Errorf("20 given back of 60 taken from 100: %d left, %v", left(), err)
		}
		if err := r.Correct([]limiter.Ask{{Bucket: tokens, Cost: 90}}, false); err != nil {
			t.Error(err)
		}
		if d := r.decide(limiter.Ask{Bucket: tokens}); d.OK || d.Answers[0].RetryAfter != 300*time.Millisecond {
			t.Errorf("30 in debt at 100/s: %+v", d)
		}
	})
}

// busy is a store of full buckets that others wait at.
type busy struct{ limiter.Store }

func (busy) Admit(_ context.Context, t limiter.Take) (limiter.Verdict, error) {
	v := limiter.Verdict{OK: true, Charges: make([]limiter.ChargeVerdict, len(t.Charges))}
	for i, c := range t.Charges {
		v.Charges[i] = limiter.ChargeVerdict{Remaining: c.Rate.Burst, Contended: c.InTurn}
		v.OK = v.OK && !c.InTurn
	}
	return v, nil
}

// Nobody who waits is overtaken by somebody who asks for an answer now.
func TestDecideDoesNotOvertake(t *testing.T) {
	cfg := shared(perSecond(5))
	cfg.Fair.Scope = limiter.FairExact
	l, err := limiter.New(cfg, busy{}, fleet.Solo("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d, err := l.Decide(context.Background(), []limiter.Ask{{Bucket: bucket(limiter.Model, "m"), Cost: 1}})
	if err != nil || d.OK || !d.Answers[0].Refused {
		t.Errorf("%+v, %v; want a refusal while others wait for their turn", d, err)
	}
}

// deaf is a store that never decides.
type deaf struct{ limiter.Store }

func (deaf) Admit(context.Context, limiter.Take) (limiter.Verdict, error) {
	return limiter.Verdict{}, limiter.ErrUnavailable
}

func TestDecideWithoutStore(t *testing.T) {
	for _, policy := range []limiter.OutagePolicy{limiter.FailClosed, limiter.FailOpen} {
		cfg := immediate()
		cfg.DefaultOutage = policy
		l, err := limiter.New(cfg, deaf{}, fleet.Solo("test"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.Decide(context.Background(), []limiter.Ask{{Bucket: bucket(limiter.User, "u"), Cost: 1}})
		switch policy {
		case limiter.FailOpen:
			if !d.OK || d.Degraded != "open" || err != nil {
				t.Errorf("%s: %+v, %v", policy, d, err)
			}
		default:
			if !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("%s: %+v, %v", policy, d, err)
			}
		}
		l.Close()
	}
}

// Where tenants have homes, a proxy that names them together asks for the buckets
// that requests are charged to.
func TestDecideAtHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := immediate()
		cfg.Homes = true
		r := newRig(t, cfg)
		req := user("u")
		req.Team = limiter.Hash(limiter.Team, "t")
		r.must(req).Done(limiter.Outcome{})
		asks := []limiter.Ask{{Bucket: bucket(limiter.User, "u"), Cost: 1}, {Bucket: bucket(limiter.Team, "t"), Cost: 1}}
		if d := r.decide(asks...); d.Answers[0].Level.Remaining != 1 || d.Answers[1].Level.Remaining != 8 {
			t.Errorf("after one request of each: %+v", d.Answers)
		}
		if err := r.Correct(asks, true); err != nil {
			t.Fatal(err)
		}
		if d := r.decide(asks...); d.Answers[0].Level.Remaining != 1 || d.Answers[1].Level.Remaining != 8 {
			t.Errorf("given back, and asked again: %+v", d.Answers)
		}
	})
}
