package limiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

func backend(name string) limiter.ID { return limiter.Hash(limiter.Backend, name) }

// per is a rate that hardly refills during a test.
func per(n int64) *limiter.Rate { return &limiter.Rate{Limit: n, Per: 1000 * time.Hour, Burst: n} }

// level looks how much of n is left in a bucket.
func (r *rig) level(d limiter.Dimension, c limiter.Class, id limiter.ID, n int64) int64 {
	r.t.Helper()
	eye := r.memory.Replica(memstore.Options{})
	defer eye.Close(context.Background())
	v, err := eye.Peek(context.Background(), limiter.Take{Charges: []limiter.Charge{
		{Bucket: limiter.BucketID{Dimension: d, Class: c, ID: id}, Rate: *per(n)},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	return v.Charges[0].Remaining
}

// backends limits a holds 2 requests, b 100 tokens, never nothing at all and
// free everything.
func backends() limiter.Config {
	return limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{
		limiter.User: {Rule: limiter.Rule{Requests: per(10), Tokens: per(1000), MaxInFlight: 5}},
		limiter.Backend: {Overrides: map[limiter.ID]limiter.Rule{
			backend("a"):     {Requests: per(2)},
			backend("b"):     {Tokens: per(100)},
			backend("never"): {Requests: &limiter.Rate{Per: time.Second}},
			backend("soon"):  {Requests: &limiter.Rate{Limit: 1, Per: time.Second, Burst: 1}},
		}},
	}}
}

func list(names ...string) (ids []limiter.ID) {
	for _, n := range names {
		ids = append(ids, backend(n))
	}
	return ids
}

// refuses expects that no candidate is selected.
func refuses(t *testing.T, g *limiter.Grant, names ...string) *limiter.Refusal {
	t.Helper()
	_, err := g.Select(context.Background(), list(names...))
	var refusal *limiter.Refusal
	if !errors.As(err, &refusal) || refusal.Dimension != limiter.Backend {
		t.Fatalf("Select(%v): %v", names, err)
	}
	return refusal
}

func TestSelectPassesOverTheExhausted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, backends())
		req := user("ann")
		req.Tokens = 60
		for i, want := range []struct {
			names []string
			index int
		}{
			{[]string{"a", "b"}, 0},
			{[]string{"a", "b"}, 0},
			{[]string{"a", "b"}, 1},         // a is exhausted
			{[]string{"a", "b", "free"}, 2}, // and b holds 40 of 60
			{[]string{"never", "soon"}, 1},
			{[]string{""}, 0},
		} {
			g := r.must(req)
			got, err := g.Select(context.Background(), list(want.names...))
			if got != want.index || err != nil {
				t.Errorf("%d: Select(%v) = %d, %v; want %d", i, want.names, got, err, want.index)
			}
			g.Done(limiter.Outcome{Tokens: -1})
		}
		g := r.must(req)
		// The one that would pass first names the refusal, and when.
		got := refuses(t, g, "never", "a", "soon", "b")
		if got.Reason != limiter.ReasonRequests || got.RetryAfter != time.Second || got.LimitType() != "backend" {
			t.Errorf("refusal %+v", got)
		}
		if got := refuses(t, g, "never"); got.Reason != limiter.ReasonBlocked || got.RetryAfter != limiter.Never {
			t.Errorf("a blocked one: %+v", got)
		}
		if got := refuses(t, g); got.RetryAfter != limiter.Never {
			t.Errorf("no candidates: %+v", got)
		}
		g.Done(limiter.Outcome{Void: true})
		req.Tokens = 101
		g = r.must(req)
		if got := refuses(t, g, "b", "never"); got.Reason != limiter.ReasonExceedsBurst || got.LimitType() != "tokens" {
			t.Errorf("larger than the budget ever is: %+v", got)
		}
		g.Done(limiter.Outcome{Void: true})
	})
}

// What was taken in vain is given back in full, slots included.
func TestVoidGivesEverythingBack(t *testing.T) {
	for _, scope := range []limiter.FairnessScope{limiter.FairReplica, limiter.FairExact} {
		synctest.Test(t, func(t *testing.T) {
			cfg := backends()
			cfg.Limits[limiter.Model] = limiter.Limit{Rule: limiter.Rule{Requests: perSecond(1)}}
			cfg.Fair = limiter.FairConfig{Enabled: true, Scope: scope}
			r := newRig(t, cfg)
			req := user("ann")
			req.Tokens = 60
			first := r.must(req)
			second := r.must(req) // waits for a second
			if second.Line() == nil {
				t.Fatal("nobody waited")
			}
			for _, g := range []*limiter.Grant{first, second} {
				refuses(t, g, "never")
				g.Done(limiter.Outcome{Void: true})
			}
			requests := r.level(limiter.User, limiter.Requests, req.User, 10)
			tokens := r.level(limiter.User, limiter.Tokens, req.User, 1000)
			if requests != 10 || tokens != 1000 {
				t.Errorf("%s: of 10 requests %d are left, of 1000 tokens %d", scope, requests, tokens)
			}
			eye := r.memory.Replica(memstore.Options{})
			defer eye.Close(context.Background())
			if n := eye.Held(limiter.SlotID{Dimension: limiter.User, ID: req.User}); n != 0 {
				t.Errorf("%s: %d slots are held", scope, n)
			}
			r.must(req).Done(limiter.Outcome{}) // the model's token is there again
		})
	}
}

// A backend's budget is settled with the rest; what never reached it costs it
// nothing.
func TestBackendIsSettled(t *testing.T) {
	for _, c := range []struct {
		name           string
		end            func(*limiter.Grant)
		user, b, after int64 // tokens left; b's after another selection
	}{
		{"below the estimate", func(g *limiter.Grant) { g.Done(limiter.Outcome{Tokens: 10}) }, 990, 90, 90},
		{"above it, into debt", func(g *limiter.Grant) { g.Done(limiter.Outcome{Tokens: 130}) }, 870, -30, -30},
		{"unknown", func(g *limiter.Grant) { g.Done(limiter.Outcome{Tokens: -1}) }, 940, 40, 40},
		{"failed", func(g *limiter.Grant) { g.Done(limiter.Outcome{Failed: true}) }, 1000, 100, 100},
		{"not reached", func(g *limiter.Grant) { g.Deselect(); g.Deselect(); g.Done(limiter.Outcome{Tokens: -1}) }, 940, 100, 100},
		{"void", func(g *limiter.Grant) { g.Done(limiter.Outcome{Void: true}) }, 1000, 100, 100},
		{"another in its place", func(g *limiter.Grant) {
			_, _ = g.Select(context.Background(), list("free"))
			g.Done(limiter.Outcome{Tokens: 10})
		}, 990, 100, 100},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, backends())
			req := user("ann")
			req.Tokens = 60
			g := r.must(req)
			if i, err := g.Select(context.Background(), list("a", "b")[1:]); i != 0 || err != nil {
				t.Fatalf("%d, %v", i, err)
			}
			if left := r.level(limiter.Backend, limiter.Tokens, backend("b"), 100); left != 40 {
				t.Errorf("%s: %d left while it runs", c.name, left)
			}
			c.end(g)
			if left := r.level(limiter.User, limiter.Tokens, req.User, 1000); left != c.user {
				t.Errorf("%s: the user has %d left, want %d", c.name, left, c.user)
			}
			if left := r.level(limiter.Backend, limiter.Tokens, backend("b"), 100); left != c.b {
				t.Errorf("%s: the backend has %d left, want %d", c.name, left, c.b)
			}
		})
	}
}

// Levels told with a refusal are those after everything was given back.
func TestLevelsOfARefusedSelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := backends()
		cfg.Limits[limiter.APIKey] = limiter.Limit{Rule: limiter.Rule{Requests: per(10), Tokens: per(1000)}}
		r := newRig(t, cfg)
		req := user("ann")
		req.APIKey, req.Tokens = "k", 60
		r.must(req).Done(limiter.Outcome{Tokens: -1})
		g := r.must(req)
		got := refuses(t, g, "never").Levels
		g.Done(limiter.Outcome{Void: true})
		if got.Requests.Remaining != 9 || got.Tokens.Remaining != 940 {
			t.Errorf("told %d requests and %d tokens", got.Requests.Remaining, got.Tokens.Remaining)
		}
	})
}

func TestSelectWithoutStore(t *testing.T) {
	for _, policy := range []limiter.OutagePolicy{limiter.FailOpen, limiter.FailClosed} {
		synctest.Test(t, func(t *testing.T) {
			cfg := backends()
			cfg.OnOutage = map[limiter.Dimension]limiter.OutagePolicy{limiter.Backend: policy}
			r := newRig(t, cfg)
			g := r.must(user("ann"))
			r.memory.SetDown(true)
			_, err := g.Select(context.Background(), list("a"))
			if open := policy == limiter.FailOpen; open != (err == nil) || errors.Is(err, limiter.ErrUnavailable) == open || (g.Degraded() == "open") != open {
				t.Errorf("%s: %v, degraded %q", policy, err, g.Degraded())
			}
			r.memory.SetDown(false)
			g.Done(limiter.Outcome{Void: err != nil})
			if left := r.level(limiter.Backend, limiter.Requests, backend("a"), 2); left != 2 {
				t.Errorf("%s: %d left of what nobody took", policy, left)
			}
		})
	}
}

// Each class that a request skips, and nothing else, does not hold for it.
func TestSkip(t *testing.T) {
	zero := &limiter.Rate{Per: time.Second}
	for _, c := range []struct {
		name string
		rule limiter.Rule
		skip limiter.Skip
	}{
		{"requests", limiter.Rule{Requests: zero}, limiter.SkipRequests},
		{"tokens", limiter.Rule{Tokens: zero}, limiter.SkipTokens},
		{"inflight", limiter.Rule{MaxInFlight: 1}, limiter.SkipInFlight},
	} {
		for _, d := range []limiter.Dimension{limiter.Global, limiter.Client, limiter.User, limiter.Model, limiter.Backend} {
			if c.skip == limiter.SkipInFlight && d == limiter.Backend {
				continue // has none
			}
			for _, skip := range []limiter.Skip{0, limiter.SkipRequests, limiter.SkipTokens, limiter.SkipInFlight, limiter.SkipQueue, limiter.SkipAll} {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{d: {Rule: c.rule}}})
					req := user("ann")
					req.Client, req.Tokens, req.Skip = "c", 1, skip
					passes := func() bool {
						g, err := r.Admit(context.Background(), req)
						if err != nil {
							return false
						}
						_, err = g.Select(context.Background(), list("a"))
						defer time.AfterFunc(time.Second, func() { g.Done(limiter.Outcome{Void: err != nil}) })
						return err == nil
					}
					first := passes()
					got := first && passes()
					if got != (skip&c.skip != 0) {
						t.Errorf("%s of %s with %b skipped: passes %v", c.name, d, skip, got)
					}
					time.Sleep(2 * time.Second)
				})
			}
		}
	}
}

// Who skips the wait line is refused at once, and does not join behind others.
func TestSkipQueue(t *testing.T) {
	for _, scope := range []limiter.FairnessScope{limiter.FairReplica, limiter.FairExact} {
		synctest.Test(t, func(t *testing.T) {
			cfg := shared(perSecond(1))
			cfg.Fair.Scope = scope
			r := newRig(t, cfg)
			r.must(user("ann")).Done(limiter.Outcome{})
			done := make(chan *limiter.Grant)
			go func() { done <- r.must(user("bob")) }()
			synctest.Wait()
			vip := user("vip")
			vip.Skip = limiter.SkipQueue
			if got := r.refused(vip); got.Reason != limiter.ReasonRequests || got.Line != nil {
				t.Errorf("%s: %+v", scope, got)
			}
			(<-done).Done(limiter.Outcome{})
		})
	}
}

// alone is a store whose verdicts on some dimensions are this replica's own, as
// while the server is out.
type alone struct {
	limiter.Store
	dims    map[limiter.Dimension]bool
	settled map[limiter.Dimension]bool // as whose word each dimension was settled
}

func (s *alone) Admit(ctx context.Context, k limiter.Take) (limiter.Verdict, error) {
	v, err := s.Store.Admit(ctx, k)
	v.Local = s.dims[k.Charges[0].Bucket.Dimension]
	return v, err
}

func (s *alone) Settle(f limiter.Settlement) {
	for _, a := range f.Adjust {
		s.settled[a.Bucket.Dimension] = f.Local
	}
	s.Store.Settle(f)
}

// What was taken by this replica's word is settled by it, and the rest by the
// store's, whichever way a request ends.
func TestBackendIsSettledWhereItWasTaken(t *testing.T) {
	for _, local := range []map[limiter.Dimension]bool{
		{}, {limiter.User: true}, {limiter.Backend: true}, {limiter.User: true, limiter.Backend: true},
	} {
		for name, end := range map[string]func(*limiter.Grant){
			"done":       func(g *limiter.Grant) { g.Done(limiter.Outcome{Tokens: 10}) },
			"void":       func(g *limiter.Grant) { g.Done(limiter.Outcome{Void: true}) },
			"deselected": func(g *limiter.Grant) { g.Deselect(); g.Done(limiter.Outcome{Tokens: 10}) },
		} {
			synctest.Test(t, func(t *testing.T) {
				store := &alone{memstore.New().Replica(memstore.Options{}), local, map[limiter.Dimension]bool{}}
				l, err := limiter.New(backends(), store, fleet.Solo("test"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				req := user("ann")
				req.Tokens = 60
				g, err := l.Admit(context.Background(), req)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := g.Select(context.Background(), list("b")); err != nil {
					t.Fatal(err)
				}
				if got := g.Degraded() == "local"; got != (len(local) > 0) {
					t.Errorf("%v: degraded %q", local, g.Degraded())
				}
				end(g)
				for _, d := range []limiter.Dimension{limiter.User, limiter.Backend} {
					if got, settled := store.settled[d]; !settled || got != local[d] {
						t.Errorf("%s, %v: %s is settled (%v) as local %v", name, local, d, settled, got)
					}
				}
			})
		}
	}
}
