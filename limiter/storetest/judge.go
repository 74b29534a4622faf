package storetest

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// backlogged returns the tenants that always want more.
func (f *sim) backlogged() (list []*simTenant) {
	for _, t := range f.tenants {
		if t.rate == 0 {
			list = append(list, t)
		}
	}
	return list
}

// jain is Jain's index of fairness over the backlogged tenants: 1 is perfect.
func (f *sim) jain() float64 {
	var sum, squares float64
	list := f.backlogged()
	for _, t := range list {
		sum += t.served
		squares += t.served * t.served
	}
	return sum * sum / squares / float64(len(list))
}

// poorest is the least share of a backlogged tenant over their average.
func (f *sim) poorest() float64 {
	least, sum := math.Inf(1), 0.0
	list := f.backlogged()
	for _, t := range list {
		least, sum = min(least, t.served), sum+t.served
	}
	return least / sum * float64(len(list))
}

// p99 is the wait of tenants that are not backlogged which 99 % don't exceed.
func (f *sim) p99() time.Duration {
	var all []int64
	for _, t := range f.tenants {
		if t.rate > 0 {
			all = append(all, t.waits...)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return time.Duration(all[len(all)*99/100]) * time.Microsecond
}

// utilisation is what was granted over what the bucket gave.
func (f *sim) utilisation() float64 {
	return float64(f.spent) * token / (float64(f.bucket.Limit) * float64(f.now-f.warmup) / float64(f.bucket.Period))
}

func (f *sim) callsPerGrant() float64 { return float64(f.calls) / float64(f.grants) }

func (f *sim) String() string {
	return fmt.Sprintf("jain %.5f, poorest %.3f, p99 %v, utilisation %.4f, calls per grant %.2f, %d grants",
		f.jain(), f.poorest(), f.p99(), f.utilisation(), f.callsPerGrant(), f.grants)
}

// simLag follows, for every pair of backlogged tenants, the difference of
// service / weight, whose range bounds what either got more than the other
// over any interval.
type simLag struct {
	list        []*simTenant
	index       map[*simTenant]int
	least, most [][]float64
}

func newSimLag(tenants []*simTenant) *simLag {
	l := &simLag{index: map[*simTenant]int{}}
	for _, t := range tenants {
		if t.rate == 0 && t.idle == nil {
			l.index[t] = len(l.list)
			l.list = append(l.list, t)
		}
	}
	for range l.list {
		l.least = append(l.least, make([]float64, len(l.list)))
		l.most = append(l.most, make([]float64, len(l.list)))
	}
	return l
}

func (l *simLag) grant(t *simTenant) {
	i, ok := l.index[t]
	if !ok {
		return
	}
	for j, o := range l.list {
		d := t.served - o.served
		l.least[i][j], l.most[i][j] = min(l.least[i][j], d), max(l.most[i][j], d)
		l.least[j][i], l.most[j][i] = min(l.least[j][i], -d), max(l.most[j][i], -d)
	}
}

// worst is the largest difference of any pair over any interval, in units of
// the larger cost / weight of the two.
func (l *simLag) worst() (worst float64) {
	for i, a := range l.list {
		for j, b := range l.list[:i] {
			worst = max(worst, (l.most[i][j]-l.least[i][j])/max(a.largest, b.largest))
		}
	}
	return worst
}

// simGuard checks F5 of every call: V never falls, no tag falls unless costs
// were corrected, and no call moves V beyond the least start that others claim.
type simGuard struct {
	broken   string // the first thing that was wrong
	corrects bool
	v        float64
	finish   map[string]float64
	claims   map[string]simClaim // by incarnation
}

type simClaim struct {
	tenant string
	start  float64
	expiry int64
}

func (g *simGuard) check(c Call, reply []int64) {
	if g.finish == nil {
		g.finish, g.claims = map[string]float64{}, map[string]simClaim{}
	}
	now, before, after := reply[1], Tag(reply[4]), Tag(reply[5])
	hold := math.Inf(1)
	for inc, cl := range g.claims {
		if inc != c.Inc && cl.expiry+claimEcho >= now {
			hold = min(hold, cl.start)
		}
	}
	if before != g.v || after < before || after > max(before, hold) {
		g.broken = fmt.Sprintf("F5: V was %g, then %g to %g, while others claimed a turn at %g", g.v, before, after, hold)
	}
	g.v = after
	claim := simClaim{start: math.Inf(1), expiry: now + reply[2] + c.Grace}
	first := map[string]bool{}
	for i, told := range TurnsOf(c, reply) {
		b := c.Bids[i] // a tag is only kept once it had a turn
		if told.Finish < g.finish[b.Tenant] && !g.corrects {
			g.broken = fmt.Sprintf("F5: the tag of %s fell from %g to %g", b.Tenant, g.finish[b.Tenant], told.Finish)
		}
		if told.State == 1 {
			g.finish[b.Tenant] = told.Finish
		}
		peers := g.peers(now, c.Inc, b.Tenant, !first[b.Tenant])
		s := max(told.Finish, told.Since) + float64(peers)*float64(b.Cost)/token/b.Weight
		if told.State == 0 && s < claim.start {
			claim.tenant, claim.start = b.Tenant, s
		}
		first[b.Tenant] = true
	}
	delete(g.claims, c.Inc)
	if reply[2] >= 0 {
		g.claims[c.Inc] = claim
	}
}

// peers counts what others claim for the tenant; of its first bid, what they
// claimed before inc did.
func (g *simGuard) peers(now int64, inc, tenant string, first bool) (n int) {
	own, claims := g.claims[inc]
	for name, cl := range g.claims {
		if name == inc || cl.tenant != tenant || cl.expiry < now {
			continue
		}
		if !first || !claims || own.tenant != tenant || cl.start < own.start || cl.start == own.start && name < inc {
			n++
		}
	}
	return n
}
