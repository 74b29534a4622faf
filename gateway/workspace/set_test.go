package workspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/lua"
)

func pointer(b bool) *bool { return &b }

// seeds declare two workspaces, of which the second sheds.
var seeds = []Seed{{ID: "acme", Name: "Acme"}, {ID: "bolt", Name: "bolt", Queueing: pointer(false), Retention: true}}

// openStore connects to a Redis, for the length of the test.
func openStore(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		last, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Close(last)
	})
	return s
}

// replica is a set of its own, as each replica of a fleet has.
func replica(t testing.TB, redis Redis, seeds []Seed) *Set {
	t.Helper()
	s := New(Options{Redis: redis, Seeds: seeds, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(s.Close)
	return s
}

// bubbled is n replicas on one Redis inside a bubble, with their links to it.
func bubbled(t *testing.T, n int) (sets []*Set, links []*storetest.Link, b *storetest.Bubble) {
	b = storetest.NewBubble(t)
	for range n {
		link := b.Link()
		store := openStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: link.Dial})
		sets, links = append(sets, replica(t, store, seeds)), append(links, link)
	}
	time.Sleep(time.Second)
	return sets, links, b
}

// keeps is whether something may be stored.
func keeps(s *Set, id string) bool { return s.MayKeep(id) == nil }

func parse(t testing.TB, text string) Patch {
	t.Helper()
	p, err := ParsePatch([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// patch changes a document, whatever it says.
func patch(t testing.TB, s *Set, id, text string) Document {
	t.Helper()
	d, _, err := s.Patch(t.Context(), id, parse(t, text), "key:a", nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// unchanged is the precondition of If-Match with one tag.
func unchanged(tag string) func(Document) bool {
	return func(d Document) bool { return d.ETag() == tag }
}

// Documents begin as the configuration says, once, and then Redis holds.
func TestSeedsAreWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets, _, _ := bubbled(t, 3)
		for i, s := range sets {
			d, err := s.Get(t.Context(), "bolt")
			if err != nil || d.Version != 1 || d.By != ByConfiguration || d.Queues() || !d.Retention || d.Published || d.At.IsZero() {
				t.Errorf("replica %d: %+v, %v", i, d, err)
			}
			if s.Queues("bolt") || !s.Queues("acme") || keeps(s, "bolt") || !keeps(s, "acme") {
				t.Errorf("replica %d goes by something else", i)
			}
		}
		list, err := sets[0].Changes(t.Context(), "acme")
		if err != nil || len(list) != 1 || len(list[0].Fields) != 0 {
			t.Errorf("changes %+v, %v", list, err)
		}
		patch(t, sets[0], "bolt", `{"inference_queueing_enabled": true, "zero_data_retention": false}`)
		for _, s := range sets {
			s.Declare(seeds) // a reload
		}
		time.Sleep(time.Second)
		if d, err := sets[2].Get(t.Context(), "bolt"); err != nil || d.Version != 2 || d.Retention {
			t.Errorf("after a reload: %+v, %v", d, err)
		}
	})
}

// A change is in force everywhere within a second, and at once where it was made.
func TestChangesReachAllReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets, _, _ := bubbled(t, 3)
		worst := time.Duration(0)
		for n := range 40 {
			want := n%2 == 1
			patch(t, sets[n%3], "acme", fmt.Sprintf(`{"inference_queueing_enabled": %v}`, want))
			if sets[n%3].Queues("acme") != want {
				t.Fatalf("change %d is not in force where it was made", n)
			}
			start := time.Now()
			for _, s := range sets {
				for s.Queues("acme") != want {
					if time.Since(start) > time.Second {
						t.Fatalf("change %d is not in force after a second", n)
					}
					time.Sleep(time.Millisecond)
				}
			}
			worst = max(worst, time.Since(start))
			time.Sleep(37 * time.Millisecond)
		}
		t.Logf("in force on 3 replicas after at most %v", worst)
	})
}

// Without Redis requests queue, the rest is as last known, and what was never
// known is forbidden.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets, links, b := bubbled(t, 2)
		patch(t, sets[0], "acme", `{"inference_queueing_enabled": false, "zero_data_retention": true}`)
		patch(t, sets[0], "bolt", `{"zero_data_retention": false, "published": true}`)
		time.Sleep(time.Second)
		links[1].Cut()
		time.Sleep(time.Second)
		if sets[1].Queues("acme") {
			t.Error("a moment without Redis has made a replica forget")
		}
		time.Sleep(1500 * time.Millisecond)
		if s := sets[1]; !s.Queues("acme") || keeps(s, "acme") || !keeps(s, "bolt") {
			t.Errorf("cut off: queues %v, may keep %v and %v", s.Queues("acme"), keeps(s, "acme"), keeps(s, "bolt"))
		}
		if d, ok := sets[1].Known("bolt"); !ok || !d.Published {
			t.Errorf("cut off: %+v, %v", d, ok)
		}
		for what, err := range map[string]error{"get": third(sets[1].Get(t.Context(), "acme")), "patch": fourth(sets[1].Patch(t.Context(), "acme", Patch{}, "", nil))} {
			if !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("%s without Redis: %v", what, err)
			}
		}
		if sets[0].Queues("acme") {
			t.Error("the other replica has forgotten, too")
		}
		cut := b.Link()
		cut.Cut()
		late := replica(t, openStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: cut.Dial}), seeds)
		time.Sleep(time.Second)
		if _, known := late.Known("acme"); known || !late.Queues("bolt") || !errors.Is(late.MayKeep("acme"), limiter.ErrUnavailable) {
			t.Error("a replica that never saw Redis knows something")
		}
	})
}

func third(_ Document, err error) error             { return err }
func fourth(_ Document, _ []Field, err error) error { return err }

// Versions that begin anew are no reason to take one content for another.
func TestEverythingBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets, _, b := bubbled(t, 1)
		before, err := sets[0].Get(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		sets[0].Close()
		b.Redis.FlushAll()
		s := replica(t, openStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: b.Link().Dial}), seeds)
		time.Sleep(time.Second)
		d, err := s.Get(t.Context(), "acme")
		if err != nil || d.Version != before.Version || d.ETag() == before.ETag() {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// What could not be created at once is created later.
func TestCreationIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storetest.NewBubble(t)
		store := &counted{Redis: openStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: b.Link().Dial})}
		store.readOnly.Store(true)
		s := replica(t, store, seeds)
		time.Sleep(time.Second)
		if d, err := s.Get(t.Context(), "bolt"); err != nil || d.Version != 0 || d.Queues() || s.MayKeep("bolt") == nil {
			t.Errorf("%+v, %v", d, err)
		}
		store.readOnly.Store(false)
		time.Sleep(time.Second)
		if d, err := s.Get(t.Context(), "bolt"); err != nil || d.Version != 1 || s.Queues("bolt") {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// Redis comes back empty: the fleet puts back what it knows, once.
func TestRedisLosesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets, _, b := bubbled(t, 3)
		before := patch(t, sets[0], "acme", `{"name": "Kept", "zero_data_retention": true}`)
		time.Sleep(time.Second)
		b.Redis.FlushAll()
		time.Sleep(time.Second)
		d, err := sets[1].Get(t.Context(), "acme")
		if err != nil || d.Name != "Kept" || !d.Retention || d.By != "key:a" || d.Version != before.Version+1 || d.ETag() == before.ETag() {
			t.Errorf("%+v, %v", d, err)
		}
		if _, _, err := sets[1].Patch(t.Context(), "acme", parse(t, `{"name": "x"}`), "key:a", unchanged(before.ETag())); !errors.Is(err, ErrStale) {
			t.Errorf("a tag of before the loss still holds: %v", err)
		}
	})
}

// Of two changes with one precondition one is made, and of many without, all.
func TestLostUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets, _, _ := bubbled(t, 2)
		for n := range 20 {
			d, err := sets[0].Get(t.Context(), "acme")
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			var errs [2]error
			for i, s := range sets {
				all.Go(func() {
					_, _, errs[i] = s.Patch(t.Context(), "acme", parse(t, fmt.Sprintf(`{"name": "%d by %d"}`, n, i)), "", unchanged(d.ETag()))
				})
			}
			all.Wait()
			if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs[:]...), ErrStale) {
				t.Fatalf("round %d: %v and %v", n, errs[0], errs[1])
			}
		}
		before := patch(t, sets[0], "bolt", `{"name": "x", "published": false, "inference_queueing_enabled": null}`)
		var all sync.WaitGroup
		for i, text := range []string{`{"name": "y"}`, `{"published": true}`, `{"inference_queueing_enabled": true}`, `{"zero_data_retention": false}`} {
			all.Go(func() { patch(t, sets[i%2], "bolt", text) })
		}
		all.Wait()
		d, err := sets[1].Get(t.Context(), "bolt")
		if err != nil || d.Name != "y" || !d.Published || d.Queueing == nil || d.Retention || d.Version != before.Version+4 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// What cannot be read is not believed, and can be replaced.
func TestForeignText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets, _, b := bubbled(t, 1)
		for _, text := range []string{"rubbish", "12 rubbish", "x {}", "12 []", " "} {
			b.Redis.Set(documentKey+"bolt", text)
			b.Redis.Set(headKey, "changed"+text)
			time.Sleep(time.Second)
			if sets[0].Queues("bolt") || keeps(sets[0], "bolt") {
				t.Errorf("%q is believed", text)
			}
			if d := patch(t, sets[0], "bolt", `{"name": "`+strings.TrimSpace(text+"!")+`"}`); d.Version < 2 {
				t.Errorf("%q is replaced by %+v", text, d)
			}
		}
	})
}

// A patch that changes nothing writes nothing; the list of changes is bounded.
func TestChangesAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sets, _, b := bubbled(t, 1)
		s := sets[0]
		for range 3 {
			if d := patch(t, s, "bolt", `{"zero_data_retention": true}`); d.Version != 1 {
				t.Fatalf("nothing has changed: %+v", d)
			}
		}
		patch(t, s, "bolt", `{"inference_queueing_enabled": null, "name": "B"}`)
		list, err := s.Changes(t.Context(), "bolt")
		want := []Field{{FieldName, "bolt", "B"}, {FieldQueueing, false, nil}}
		if err != nil || len(list) != 2 || fmt.Sprint(list[0].Fields) != fmt.Sprint(want) || list[0].By != "key:a" || list[0].Version != 2 || list[0].At.IsZero() {
			t.Fatalf("%+v, %v", list, err)
		}
		for n := range keptChanges + 20 {
			patch(t, s, "bolt", fmt.Sprintf(`{"name": "%d"}`, n))
		}
		if list, err = s.Changes(t.Context(), "bolt"); err != nil || len(list) != keptChanges || list[0].Version != 122 || list[99].Version != 23 {
			t.Errorf("%d changes, %v", len(list), err)
		}
		if kept, err := b.Redis.List(changesKey + "bolt"); err != nil || len(kept) != keptChanges {
			t.Errorf("%d changes are kept, %v", len(kept), err)
		}
		if _, err := s.Changes(t.Context(), "nobody"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	})
}

// counted counts calls, and refuses to write if it is told so.
type counted struct {
	Redis
	calls    atomic.Int64
	readOnly atomic.Bool
}

func (c *counted) Eval(ctx context.Context, script lua.Script, keys []string, args ...string) ([]any, error) {
	c.calls.Add(1)
	if script.Name == lua.WorkspaceWrite.Name && c.readOnly.Load() {
		return nil, limiter.ErrUnavailable
	}
	return c.Redis.Eval(ctx, script, keys, args...)
}

// More workspaces than one call may read, and more than one round creates.
func TestManyWorkspaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storetest.NewBubble(t)
		store := &counted{Redis: openStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: b.Link().Dial})}
		var many []Seed
		var ids []string
		for n := range 300 {
			ids = append(ids, fmt.Sprint("w", n))
			many = append(many, Seed{ID: ids[n], Name: ids[n], Queueing: pointer(n%2 == 0)})
		}
		s := replica(t, store, many)
		time.Sleep(3 * time.Second)
		list, err := s.List(t.Context(), ids)
		if err != nil || len(list) != 300 {
			t.Fatalf("%d documents, %v", len(list), err)
		}
		for n, d := range list {
			if d.Version != 1 || d.ID != ids[n] || s.Queues(ids[n]) != (n%2 == 0) {
				t.Errorf("%+v", d)
			}
		}
		calls := store.calls.Load()
		time.Sleep(10 * time.Second)
		if n := store.calls.Load() - calls; n > 41 {
			t.Errorf("%d calls in 10 s while nothing changes", n)
		}
		s.Declare(many[:1])
		if _, known := s.Known("w1"); known {
			t.Error("a workspace that is no longer declared is known")
		}
	})
}

// Without workspaces Redis is not asked, and without Redis nothing is known.
func TestNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storetest.NewBubble(t)
		store := &counted{Redis: openStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: b.Link().Dial})}
		replica(t, store, nil)
		time.Sleep(10 * time.Second)
		if n := store.calls.Load(); n != 0 {
			t.Errorf("%d calls", n)
		}
		alone := replica(t, nil, seeds)
		if _, err := alone.Get(t.Context(), "acme"); !errors.Is(err, limiter.ErrUnavailable) || !alone.Queues("bolt") || keeps(alone, "acme") {
			t.Errorf("without a store: %v", err)
		}
	})
}
