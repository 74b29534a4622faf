package agents_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/localshare"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// gossip is one replica's view of the others, renewed now and then.
type gossip struct {
	self int
	told *[3]atomic.Pointer[[]fleet.AgentLoad]
}

func (g gossip) View() *fleet.View {
	v := &fleet.View{Members: 3, Fresh: true, At: time.Now()}
	for i := range g.told {
		if loads := g.told[i].Load(); i != g.self && loads != nil {
			v.Replicas = append(v.Replicas, fleet.Digest{Agents: *loads})
		}
	}
	return v
}
func (gossip) Publish([]fleet.Pool, int64) {}

// TestSharesOfSlots: while the store is out, each of three replicas has two of an agent's
// seven slots, and tenants take turns there; when it is back, all seven are used, and
// never more.
func TestSharesOfSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const replicas, slots = 3, 7
		conf := agents.Config{Timeout: time.Hour, Agents: []agents.Agent{{Name: "a", Slots: slots, Depth: 100}}}
		sets, links, told := threeSets(t, conf, nil)
		judge := &judge{served: make([]map[string]int, replicas)}
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { tell(ctx, sets, told) })
		for i := range judge.served {
			judge.served[i] = map[string]int{}
		}
		for i, set := range sets {
			for j := range 8 {
				all.Go(func() { judge.client(ctx, i, set, []string{"ann", "ann", "ann", "bob"}[j%4]) })
			}
		}
		during := func(d time.Duration) (peak int) {
			time.Sleep(2 * time.Second) // for what ran before to end
			judge.mu.Lock()
			judge.peak = judge.running
			judge.mu.Unlock()
			time.Sleep(d)
			judge.mu.Lock()
			defer judge.mu.Unlock()
			return judge.peak
		}
		if peak := during(3 * time.Second); peak != slots {
			t.Errorf("with the store %d ran at once, want %d", peak, slots)
		}
		for _, l := range links {
			l.Cut()
		}
		judge.forget()
		if peak := during(8 * time.Second); peak != 2*replicas {
			t.Errorf("without the store %d ran at once, want %d", peak, 2*replicas)
		}
		judge.mu.Lock()
		for i, served := range judge.served {
			if a, b := served["ann"], served["bob"]; a == 0 || b == 0 || a-b > a/10+2 || b-a > a/10+2 {
				t.Errorf("without the store, replica %d served %v of two tenants", i, served)
			}
		}
		judge.mu.Unlock()
		for _, l := range links {
			l.Mend()
		}
		if peak := during(8 * time.Second); peak != slots {
			t.Errorf("with the store again %d ran at once, want %d", peak, slots)
		}
		stop()
		all.Wait()
		if judge.worst > slots {
			t.Errorf("%d ran at once in all, of %d", judge.worst, slots)
		}
	})
}

// threeSets are replicas of a fleet that gossip, over one store, once they believe it.
func threeSets(t *testing.T, conf agents.Config, reg prometheus.Registerer) (sets []*agents.Set, links []*storetest.Link, told *[3]atomic.Pointer[[]fleet.AgentLoad]) {
	server, quiet := storetest.NewBubble(t), slog.New(slog.DiscardHandler)
	told = new([3]atomic.Pointer[[]fleet.AgentLoad])
	for i := range told {
		link := server.Link()
		redis, err := redisstore.New(redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: link.Dial, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		share, err := localshare.New(localshare.Options{
			Inner: redis, Registry: redis, Fleet: gossip{self: i, told: told}, Logger: quiet,
			Policy: func(limiter.Dimension) limiter.OutagePolicy { return limiter.LocalShare },
		})
		if err != nil {
			t.Fatal(err)
		}
		o := agents.Options{Store: share, Fleet: gossip{self: i, told: told}, Replicas: share.Divisor, Logger: quiet}
		if reg != nil {
			o.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"replica": strconv.Itoa(i)}, reg)
		}
		set, err := agents.New(o)
		if err != nil {
			t.Fatal(err)
		}
		set.Configure(conf)
		sets, links = append(sets, set), append(links, link)
		t.Cleanup(func() {
			set.Close()
			if err := share.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(10 * time.Second) // until counts are believed
	return sets, links, told
}

// TestStallCostsNoShares: a store that stands still for less than makes it unusable
// costs an agent with fewer slots than replicas hardly more than that, and nobody who
// may not wait is refused a slot that is free.
func TestStallCostsNoShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 80 * time.Millisecond
		reg := prometheus.NewRegistry()
		conf := agents.Config{Timeout: time.Hour, Agents: []agents.Agent{{Name: "a", Slots: 2, Depth: 100}}}
		sets, links, _ := threeSets(t, conf, reg)
		for round := range 20 {
			for _, l := range links {
				l.Freeze()
			}
			time.AfterFunc(stall, func() {
				for _, l := range links {
					l.Thaw()
				}
			})
			time.Sleep(time.Duration(round) * stall / 20)
			asked := time.Now()
			slot, err := sets[round%3].Acquire(context.Background(), agents.Want{Agents: []string{"a"}, Tenant: "ann", Weight: 1})
			if err != nil {
				t.Fatalf("round %d: %v after %v", round, err, time.Since(asked))
			}
			if took := time.Since(asked); took > stall+100*time.Millisecond {
				t.Errorf("round %d: a free slot took %v", round, took)
			}
			slot.Free(false)
			time.Sleep(3 * time.Second)
		}
		if n, err := testutil.GatherAndCount(reg, "headway_agent_shares_total"); n != 0 || err != nil {
			t.Errorf("%d replicas went by shares (%v)", n, err)
		}
		for _, l := range links { // now for good: that is counted
			l.Cut()
		}
		time.Sleep(2 * time.Second)
		if slot, err := sets[0].Acquire(context.Background(), agents.Want{Agents: []string{"a"}, Tenant: "ann", Weight: 1}); err == nil {
			slot.Free(false)
			t.Error("a share of no slot gave one")
		}
		if n, err := testutil.GatherAndCount(reg, "headway_agent_shares_total"); n != 1 || err != nil {
			t.Errorf("%d replicas went by shares (%v), want the one that was asked", n, err)
		}
		for _, l := range links {
			l.Mend()
		}
		time.Sleep(5 * time.Second)
	})
}

// tell renews what replicas know of each other, until ctx ends.
func tell(ctx context.Context, sets []*agents.Set, told *[3]atomic.Pointer[[]fleet.AgentLoad]) {
	for ctx.Err() == nil {
		for i, set := range sets {
			loads := set.Loads()
			told[i].Store(&loads)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// judge counts what runs.
type judge struct {
	mu                   sync.Mutex
	running, peak, worst int
	served               []map[string]int
}

// client sends one request after the other, each of half a second.
func (j *judge) client(ctx context.Context, replica int, set *agents.Set, tenant string) {
	want := agents.Want{Agents: []string{"a"}, Tenant: limiter.ID(tenant), Weight: 1, Queue: true}
	for {
		slot, err := set.Acquire(ctx, want)
		if err != nil {
			return
		}
		j.mu.Lock()
		j.running++
		j.peak, j.worst = max(j.peak, j.running), max(j.worst, j.running)
		j.served[replica][tenant]++
		j.mu.Unlock()
		time.Sleep(500 * time.Millisecond)
		j.mu.Lock()
		j.running--
		j.mu.Unlock()
		slot.Free(false)
	}
}

func (j *judge) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, served := range j.served {
		clear(served)
	}
}
