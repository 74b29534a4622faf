package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

const (
	// findTime bounds one look at the servers. Some of those asked may hang.
	findTime = 250 * time.Millisecond
	// surveyMost is how many nodes are asked at a time.
	surveyMost = 4
)

// survey is the scout of a cluster. It asks some masters for CLUSTER NODES and,
// where none answers, other nodes that it has heard of.
//
// One node's view may be old, of a master above all that wakes from a freeze.
// So views are merged by the rule by which the cluster itself settles conflicts:
// of all who claim a slot, the one with the greatest configuration epoch owns it.
type survey struct {
	opts Options
	wg   sync.WaitGroup

	others map[string]bool // the addresses configured, and those heard of last
}

func newSurvey(o Options) *survey {
	s := &survey{opts: o}
	s.forget()
	return s
}

// forget keeps of all addresses those configured: of a cluster that is moved
// about for years, most are dead.
func (s *survey) forget() {
	s.others = map[string]bool{}
	for _, addr := range s.opts.Addresses {
		s.others[addr] = true
	}
}

// member is one line of CLUSTER NODES.
type member struct {
	addr   string
	master bool
	epoch  int64
	ranges [][2]int
}

// find implements scout.
func (s *survey) find(t *table) (masters, owners []string, err error) {
	views, err := s.ask(healthy(t.nodes), func(ctx context.Context, n *client) (string, error) {
		return n.redis.Do(ctx, n.redis.B().ClusterNodes().Build()).ToString()
	})
	if len(views) == 0 {
		views, err = s.askAll(s.strangers(), s.askStranger)
	}
	if len(views) == 0 {
		return nil, nil, err
	}
	s.forget()
	best, epochs, found := make([]string, slotCount), make([]int64, slotCount), map[string]bool{}
	for _, view := range views {
		for _, m := range parseNodes(view.text, view.addr, s.opts.byHostname()) {
			s.others[m.addr] = true
			if m.master {
				m.claim(best, epochs)
				found[m.addr] = true
			}
		}
	}
	if !slices.ContainsFunc(best, func(addr string) bool { return addr != "" }) {
		return nil, nil, fmt.Errorf("no master keeps any slot, says %s", views[0].addr)
	}
	for addr := range found {
		masters = append(masters, addr)
	}
	slices.Sort(masters)
	return masters, best, nil
}

// claim enters m where no greater epoch claims the slot.
func (m member) claim(best []string, epochs []int64) {
	for _, r := range m.ranges {
		for i := max(0, r[0]); i <= min(r[1], slotCount-1); i++ {
			if best[i] == "" || m.epoch > epochs[i] {
				best[i], epochs[i] = m.addr, m.epoch
			}
		}
	}
}

// view is what one node says.
type view struct {
	addr, text string
	err        error
}

// ask asks nodes of the table, over the connections that calls use.
func (s *survey) ask(nodes []*client, do func(context.Context, *client) (string, error)) ([]view, error) {
	byAddr := map[string]*client{}
	var addrs []string
	for _, n := range nodes[:min(len(nodes), surveyMost)] {
		byAddr[n.addr] = n
		addrs = append(addrs, n.addr)
	}
	return s.askAll(addrs, func(ctx context.Context, addr string) (string, error) { return do(ctx, byAddr[addr]) })
}

// askAll asks several addresses at once and returns the answers that came in
// time, and why others did not come. The rest end by themselves: connecting and
// silence are bounded.
func (s *survey) askAll(addrs []string, do func(context.Context, string) (string, error)) ([]view, error) {
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	answers := make(chan view, len(addrs))
	for _, addr := range addrs {
		s.wg.Go(func() {
			text, err := do(ctx, addr)
			answers <- view{addr, text, err}
		})
	}
	var views []view
	var wrong reasons
	for n := range addrs {
		select {
		case v := <-answers:
			if v.err == nil && v.text != "" {
				views = append(views, v)
			} else if v.err != nil {
				wrong.add(fmt.Errorf("%s: %w", v.addr, v.err))
			}
		case <-ctx.Done():
			wrong.add(fmt.Errorf("%d of %d servers did not answer within %v", len(addrs)-n, len(addrs), findTime))
			return views, wrong.err()
		}
	}
	return views, wrong.err()
}

// healthy returns the nodes with a closed breaker, or all if there are none, in
// random order. Whoever hangs would only hold up the look.
func healthy(nodes []*client) []*client {
	list := slices.DeleteFunc(slices.Clone(nodes), func(n *client) bool { return n.breaker.shut.Load() })
	if len(list) == 0 {
		list = slices.Clone(nodes)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// strangers returns some addresses heard of.
func (s *survey) strangers() []string {
	var list []string
	for addr := range s.others {
		list = append(list, addr)
	}
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:min(len(list), surveyMost)]
}

// askStranger asks over a connection of its own.
func (s *survey) askStranger(ctx context.Context, addr string) (string, error) {
	c, err := rueidis.NewClient(s.opts.scouting(addr))
	if err != nil {
		if c != nil {
			c.Close()
		}
		return "", err
	}
	defer c.Close()
	return c.Do(ctx, c.B().ClusterNodes().Build()).ToString()
}

func (s *survey) close() { s.wg.Wait() }

// parseNodes reads CLUSTER NODES, a text of one line per node:
//
//	<id> <ip:port@cport[,hostname]> <flags> <master> <ping> <pong> <epoch> <link> <slot or range>...
//
// The node asked may not know its own address: then it is the one it was asked
// at. Slots on the move stand in brackets and still belong to who names them.
func parseNodes(text, asked string, byHostname bool) (list []member) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		flags := strings.Split(f[2], ",")
		m := member{addr: address(f[1], asked, byHostname), master: slices.Contains(flags, "master")}
		if m.addr == "" || slices.Contains(flags, "noaddr") || slices.Contains(flags, "handshake") {
			continue
		}
		m.epoch, _ = strconv.ParseInt(f[6], 10, 64)
		for _, text := range f[8:] {
			from, to, isRange := strings.Cut(text, "-")
			first, err := strconv.Atoi(from)
			if err != nil {
				continue
			}
			last := first
			if isRange {
				if last, err = strconv.Atoi(to); err != nil {
					continue
				}
			}
			m.ranges = append(m.ranges, [2]int{first, last})
		}
		list = append(list, m)
	}
	return list
}

// address reads ip:port@cport[,hostname]. An IPv6 address stands there bare.
func address(text, asked string, byHostname bool) string {
	endpoint, names, _ := strings.Cut(text, "@")
	at := strings.LastIndexByte(endpoint, ':')
	if at < 0 {
		return ""
	}
	host, port := endpoint[:at], endpoint[at+1:]
	if _, name, named := strings.Cut(names, ","); named && byHostname {
		if name, _, _ = strings.Cut(name, ","); name != "" {
			host = name
		}
	}
	if host == "" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}

// byHostname: certificates are usually made out to names.
func (o Options) byHostname() bool { return o.TLS && o.TLSConfig.ServerName == "" }

// scouting are the settings of a connection that only asks who decides.
func (o Options) scouting(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress: []string{addr}, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		ClientName: "headway-scout", DisableRetry: true, DisableCache: true, ForceSingleClient: true,
		ConnWriteTimeout: 2 * findTime, Dialer: net.Dialer{Timeout: findTime, KeepAlive: time.Second},
		DialCtxFn: o.dialScout(), PipelineMultiplex: -1,
	}
}
