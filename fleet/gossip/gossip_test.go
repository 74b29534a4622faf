package gossip

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/fleet/simnet"
)

// lan is a good local network.
var lan = simnet.Config{Seed: 1, Latency: 300 * time.Microsecond, Jitter: 200 * time.Microsecond}

// linger is when the last goroutine of memberlist has ended after Close: those
// in the middle of a probe or a dial wait for its timeout. The time of a bubble
// stops when its first goroutine returns, so tests have to wait for them.
const linger = 15 * time.Second

// cluster is a fleet on a simulated network.
type cluster struct {
	t     *testing.T
	net   *simnet.Network
	nodes []*Node
	logs  *logs
}

// newCluster starts n nodes that know all addresses; edit changes each
// configuration. They are closed before the bubble ends.
func newCluster(t *testing.T, n int, links simnet.Config, edit func(i int, c *Config)) *cluster {
	c := &cluster{t: t, net: simnet.New(links), logs: &logs{}}
	for i := range n {
		c.start(i, n, edit)
	}
	t.Cleanup(func() {
		for _, node := range c.nodes {
			node.Close(dead)
		}
		time.Sleep(linger)
	})
	return c
}

func host(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i+1) }

// start adds node i of n.
func (c *cluster) start(i, n int, edit func(int, *Config)) *Node {
	c.t.Helper()
	transport, err := c.net.Listen(host(i))
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := Config{Name: fmt.Sprint("r", i), Transport: transport, Logger: slog.New(slog.NewTextHandler(c.logs, nil))}
	for j := range n {
		cfg.Join = append(cfg.Join, host(j))
	}
	if edit != nil {
		edit(i, &cfg)
	}
	node, err := Start(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes = append(c.nodes, node)
	return node
}

// dead is a context that is done: Close does not say goodbye.
var dead = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// logs collects log lines.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// within waits until cond holds and returns how long it took.
func (c *cluster) within(limit time.Duration, what string, cond func() bool) time.Duration {
	c.t.Helper()
	began := time.Now()
	for !cond() {
		if time.Since(began) > limit {
			c.t.Fatalf("%s: not within %v; members %v", what, limit, c.members())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(began)
}

func (c *cluster) members() []int {
	var m []int
	for _, n := range c.nodes {
		m = append(m, n.Members())
	}
	return m
}

// all reports whether every node of the list sees want members, freshly.
func all(nodes []*Node, want int) func() bool {
	return func() bool {
		return !slices.ContainsFunc(nodes, func(n *Node) bool {
			v := n.View()
			return v.Members != want || !v.Fresh || len(v.Replicas) != want-1
		})
	}
}

func TestJoin(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, n, lan, nil)
				took := c.within(5*time.Second, "all see all", all(c.nodes, n))
				t.Logf("%d nodes agree after %v", n, took)
			})
		})
	}
}

// TestJoinLate: only the newcomer knows an address, and the others learn of it.
func TestJoinLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, lan, nil)
		c.within(5*time.Second, "three", all(c.nodes, 3))
		late := c.start(7, 1, func(_ int, cfg *Config) { cfg.Join = nil })
		if n, err := late.Join(host(0)); n != 1 || err != nil {
			t.Fatalf("join: %d, %v", n, err)
		}
		c.within(5*time.Second, "four", all(c.nodes, 4))
		if n, err := late.Join(host(0), host(1), host(7)); n != 2 || err != nil {
			t.Errorf("join of two members and itself: %d, %v", n, err)
		}
		if n, err := late.Join("10.9.9.9:1"); n != 0 || err == nil {
			t.Errorf("join of nobody: %d, %v", n, err)
		}
		if n, err := late.Join("nonsense"); n != 0 || err == nil {
			t.Errorf("join of nonsense: %d, %v", n, err)
		}
	})
}

// TestStartOrder: the first node comes up when nobody else is there yet.
func TestStartOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 0, lan, nil)
		for i := range 3 {
			c.start(i, 3, nil)
			time.Sleep(7 * time.Second)
		}
		if !all(c.nodes, 3)() {
			t.Errorf("members %v", c.members())
		}
	})
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, lan, nil)
		c.within(5*time.Second, "all see all", all(c.nodes, 4))
		c.nodes[3].Close(dead)
		rest := c.nodes[:3]
		stale := c.within(time.Second, "views fall back", func() bool {
			return !slices.ContainsFunc(rest, func(n *Node) bool { return n.View().Fresh })
		})
		noticed := c.within(15*time.Second, "the crash is noticed", all(rest, 3))
		t.Logf("stale after %v, noticed after %v more", stale, noticed)
		if stale < 2*fleet.Interval {
			t.Errorf("stale after %v: a view must outlive two lost digests", stale)
		}
	})
}

func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, lan, nil)
		c.within(5*time.Second, "all see all", all(c.nodes, 4))
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.nodes[2].Close(ctx); err != nil {
			t.Fatal(err)
		}
		rest := []*Node{c.nodes[0], c.nodes[1], c.nodes[3]}
		took := c.within(time.Second, "the leave is known", all(rest, 3))
		t.Logf("known after %v", took)
		if err := c.nodes[2].Close(ctx); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

// TestRestart: a replica that crashed comes back under its name, with a lower
// incarnation and at another address.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, lan, func(_ int, cfg *Config) { cfg.Incarnation = 1 << 40 })
		c.within(5*time.Second, "all see all", all(c.nodes, 3))
		c.nodes[2].Close(dead)
		c.nodes = c.nodes[:2]
		again := c.start(9, 2, func(_ int, cfg *Config) { cfg.Name, cfg.Incarnation = "r2", 7 })
		again.Publish([]fleet.Pool{{Name: "p", Depth: 5}}, 1)
		c.within(20*time.Second, "the new life is believed", func() bool {
			return all(c.nodes, 3)() && c.nodes[0].View().Waiting("p") == 5
		})
	})
}

// TestPartition is the reason for the periodic rejoin: memberlist alone never
// heals a cut this long.
func TestPartition(t *testing.T) {
	for _, size := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d of 5 cut off", size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 5, lan, nil)
				c.within(5*time.Second, "all see all", all(c.nodes, 5))
				var side []string
				for i := range size {
					side = append(side, host(i))
				}
				c.net.Partition(side...)
				noticed := c.within(50*time.Second, "both sides see themselves", func() bool {
					return all(c.nodes[:size], size)() && all(c.nodes[size:], 5-size)()
				})
				time.Sleep(time.Minute - noticed)
				c.net.Mend()
				healed := c.within(30*time.Second, "the cut heals", all(c.nodes, 5))
				t.Logf("split seen after %v, healed %v after the cut ended", noticed, healed)
			})
		})
	}
}

// A node that every packet about a newcomer has missed hears of it soon after
// the newcomer's first digest arrives, although it has no address to try.
func TestMissedJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, lan, func(i int, cfg *Config) { cfg.Join = []string{host(0)} })
		c.within(5*time.Second, "both see each other", all(c.nodes, 2))
		c.net.SetLoss(1) // connections work, so the newcomer joins and nobody is declared dead
		c.start(2, 0, func(_ int, cfg *Config) { cfg.Join = []string{host(1)} })
		time.Sleep(4 * time.Second) // by then it is not announced any more
		c.net.SetLoss(0)
		took := c.within(3*time.Second, "the first hears of the third", all(c.nodes, 3))
		t.Logf("after %v", took)
	})
}

// spread publishes something at node 0 and measures when all others have it.
func spread(c *cluster, depth int) time.Duration {
	c.nodes[0].Publish([]fleet.Pool{{Name: "p", Depth: depth, Spacing: time.Second}}, int64(depth))
	return c.within(5*time.Second, fmt.Sprint("depth ", depth, " known"), func() bool {
		return !slices.ContainsFunc(c.nodes[1:], func(n *Node) bool { return n.View().Waiting("p") != depth })
	})
}

func TestDigestsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 6, lan, nil)
		c.within(5*time.Second, "all see all", all(c.nodes, 6))
		for depth := range 20 {
			// One interval until it is sent, one until it is in the next view.
			if took := spread(c, depth); took > 2*fleet.Interval+20*time.Millisecond {
				t.Errorf("depth %d took %v", depth, took)
			}
		}
	})
}

// TestDigestsSurviveLoss: with a fifth of all packets lost, views are still fresh
// most of the time, and nobody is declared dead for it.
func TestDigestsSurviveLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, lan, nil)
		c.within(5*time.Second, "all see all", all(c.nodes, 4))
		c.net.SetLoss(0.2)
		fresh, total := 0, 0
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			for _, n := range c.nodes {
				total++
				if n.View().Fresh {
					fresh++
				}
			}
		}
		t.Logf("%d of %d views fresh", fresh, total)
		if fresh < total*9/10 {
			t.Errorf("%d of %d views fresh, want nine in ten", fresh, total)
		}
		c.net.SetLoss(0)
		c.within(10*time.Second, "all fresh again", all(c.nodes, 4))
	})
}

// TestForwarding: a fleet beyond the limit of direct sends is told in turns and by
// rumour.
func TestForwarding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 9, lan, func(_ int, cfg *Config) { cfg.DirectMembers = 2 })
		c.within(10*time.Second, "all are members", func() bool {
			return !slices.ContainsFunc(c.members(), func(m int) bool { return m != 9 })
		})
		worst := time.Duration(0)
		for depth := 1; depth <= 20; depth++ {
			worst = max(worst, spread(c, depth))
		}
		t.Logf("slowest of 20 digests reached all after %v", worst)
		// By direct sends alone, two of eight per interval, each digest is older
		// than FreshFor a quarter of the time, and this never ends.
		if worst > 2*time.Second {
			t.Errorf("slowest digest took %v", worst)
		}
		for _, n := range c.nodes {
			if q := n.queue.NumQueued(); q > 9 {
				t.Errorf("%d rumours queued for 9 replicas", q)
			}
		}
	})
}

func TestOversizeIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		c := newCluster(t, 2, lan, func(i int, cfg *Config) {
			if i == 0 {
				cfg.Registerer = reg
			}
		})
		c.within(5*time.Second, "both", all(c.nodes, 2))
		pool := fleet.Pool{Name: "model:" + strings.Repeat("ab", 16), Depth: 3}
		for i := range 200 {
			pool.Tenants = append(pool.Tenants, fleet.TenantLoad{Tenant: fmt.Sprintf("%032x", i), Queued: 1})
		}
		c.nodes[0].Publish([]fleet.Pool{pool}, 0)
		c.within(2*time.Second, "the depth arrives", func() bool { return c.nodes[1].View().Waiting(pool.Name) == 3 })
		got := c.nodes[1].View().Replicas[0].Pools[0].Tenants
		if len(got) < 30 || len(got) == 200 || got[0].Tenant != pool.Tenants[0].Tenant {
			t.Errorf("%d tenants arrived, first %+v", len(got), got[:1])
		}
		if n := testutil.ToFloat64(c.nodes[0].metrics.oversize); n < 1 {
			t.Errorf("%v oversize digests counted", n)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		c := newCluster(t, 3, lan, func(i int, cfg *Config) {
			if i == 0 {
				cfg.Registerer = reg
			}
		})
		c.within(5*time.Second, "all", all(c.nodes, 3))
		time.Sleep(2 * time.Second)
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		want := "# HELP headway_fleet_members Live replicas as seen by this one, itself included; wrong for seconds after a crash.\n" +
			"# TYPE headway_fleet_members gauge\nheadway_fleet_members 3\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "headway_fleet_members"); err != nil {
			t.Error(err)
		}
		m := c.nodes[0].metrics
		if age := testutil.ToFloat64(m.age); age > fleet.FreshFor.Seconds() {
			t.Errorf("age %v", age)
		}
		if n := testutil.ToFloat64(m.news); n < 18 {
			t.Errorf("%v digests were news after two seconds of two peers", n)
		}
		if n := testutil.ToFloat64(m.malformed); n != 0 {
			t.Errorf("%v malformed", n)
		}
		if _, err := newMetrics(reg); err == nil {
			t.Error("a second node on one registerer")
		}
		c.nodes[0].Close(dead)
		if _, err := newMetrics(reg); err != nil {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestKeys: a fleet with keys, one of whose members is in the middle of moving to
// another, and strangers that must stay outside.
func TestKeys(t *testing.T) {
	old, next := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, lan, func(i int, cfg *Config) {
			cfg.Keys = [][]byte{old, next}
			if i == 2 {
				cfg.Keys = [][]byte{next, old}
			}
		})
		c.within(5*time.Second, "all see all", all(c.nodes, 3))
		members := c.nodes
		c.start(5, 3, nil)
		c.start(6, 3, func(_ int, cfg *Config) { cfg.Keys = [][]byte{bytes.Repeat([]byte{3}, 32)} })
		time.Sleep(20 * time.Second)
		if !all(members, 3)() || c.nodes[3].Members() != 1 || c.nodes[4].Members() != 1 {
			t.Errorf("members %v, want 3 3 3 1 1", c.members())
		}
	})
}

// TestSameName: two replicas that were given one name are told apart loudly.
func TestSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, lan, func(i int, cfg *Config) {
			if i == 2 {
				cfg.Name = "r1"
			}
		})
		time.Sleep(5 * time.Second)
		if !strings.Contains(c.logs.String(), "two replicas use one name") {
			t.Errorf("nothing in the log:\n%s", c.logs)
		}
	})
}

// TestGarbage: what is not a digest is counted and otherwise ignored.
func TestGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, lan, nil)
		c.within(5*time.Second, "both", all(c.nodes, 2))
		d := &delegate{c.nodes[0]}
		d.NotifyMsg(nil)
		d.NotifyMsg([]byte("hello"))
		d.MergeRemoteState([]byte{1, 2, 3}, false)
		if n := testutil.ToFloat64(d.metrics.malformed); n != 3 {
			t.Errorf("%v malformed, want 3", n)
		}
		if !all(c.nodes, 2)() {
			t.Error("garbage changed the view")
		}
	})
}
