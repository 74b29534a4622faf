package batch

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
	"github.com/headway-limiter/headway/lua"
)

var seed = flag.Uint64("seed", 0, "of the tapes; 0: a new one")

// plain runs scripts on one server, without a store in between.
type plain struct {
	mu   sync.Mutex
	conn *redisproc.Conn
}

func dial(t *testing.T, addr string) *plain {
	c, err := redisproc.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &plain{conn: c}
}

// Eval implements Redis.
func (p *plain) Eval(_ context.Context, script lua.Script, keys []string, args ...string) ([]any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	command := append([]string{"EVAL", script.Source, number(len(keys))}, keys...)
	if script.Fenced {
		command = append(command, number(time.Now().Add(time.Hour).UnixMicro()))
	}
	r, err := p.conn.Do(append(command, args...)...)
	if err != nil {
		return nil, err
	}
	list, ok := r.([]any)
	if !ok {
		return nil, errors.New("not a list")
	}
	return list, nil
}

// servers are what tapes run on.
func servers(t *testing.T, f func(t *testing.T, r *plain)) {
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.RunT(t)
		m.ClockTTL(true)
		f(t, dial(t, m.Addr()))
	})
	t.Run("redis", func(t *testing.T) { f(t, dial(t, redisproc.Start(t).Addr())) })
}

// model is what the scripts should keep, in plain Go. Time does not pass in it: no
// job rests, and a lease is long or over at once.
type model struct {
	v       float64
	n       int  // of entries into the round
	at      bool // several enter at once, in any order
	tenants map[string]*modelTenant
	batches map[string]*modelBatch
	claims  []*modelClaim
}

type modelTenant struct {
	weight float64
	in     bool    // in the round
	tag    float64 // start tag there, or the finish tag kept elsewhere
	kept   bool    // the latter is kept
	place  int     // among equal tags
	queue  []string
	back   map[string]bool // jobs to be run again
	owed   int
}

type modelBatch struct {
	tenant  string
	status  string
	expired bool
	costs   []int64
	next    int
	results map[int64]string // kind and line, by job
	running map[int64]*modelClaim
}

type modelClaim struct {
	job   *job
	cost  int64
	batch *modelBatch
	dead  bool // its lease is over as soon as somebody looks
}

func (m *model) enter(t *modelTenant, tag float64) {
	if !m.at {
		m.n++
	}
	t.in, t.tag, t.place, t.kept = true, tag, m.n, false
}

// settle puts a tenant where it belongs after something has changed.
func (m *model) settle(t *modelTenant) {
	if t.in || len(t.queue)+len(t.back) == 0 {
		return
	}
	tag := 0.0
	if t.kept {
		tag = t.tag
	}
	m.enter(t, max(tag, m.v))
}

func (m *model) correct(t *modelTenant, delta int64) {
	by := float64(delta) / t.weight
	switch {
	case t.in:
		t.tag += by
	default:
		tag := m.v
		if t.kept {
			tag = t.tag
		}
		tag += by
		t.tag, t.kept = tag, tag > m.v
	}
}

// reap is what a claim does first.
func (m *model) reap() (lost int64) {
	m.n++
	m.at = true
	defer func() { m.at = false }()
	for _, c := range m.claims {
		if c.dead && c.batch.running[c.job.number] == c {
			lost++
			delete(c.batch.running, c.job.number)
			if t := m.tenants[c.batch.tenant]; c.batch.status == "in_progress" {
				t.back[key(c.job)] = true
				m.settle(t)
			}
		}
	}
	return lost
}

func key(j *job) string { return j.batch + "/" + number(j.number) }

// next says whose turn it is, and takes out of the round who has nothing to claim.
func (m *model) next() *modelTenant {
	for {
		var best *modelTenant
		for _, t := range m.tenants {
			if t.in && (best == nil || t.tag < best.tag || t.tag == best.tag && t.place < best.place) {
				best = t
			}
		}
		if best == nil {
			return nil
		}
		if m.tidy(best) {
			return best
		}
		best.in, best.kept = false, best.tag > m.v
	}
}

// tidy leaves out what is of batches that have ended, and reports whether t has
// anything to claim.
func (m *model) tidy(t *modelTenant) bool {
	for k := range t.back {
		if b := m.batches[k[:strings.IndexByte(k, '/')]]; b.status != "in_progress" || b.expired {
			delete(t.back, k)
		}
	}
	for len(t.queue) > 0 {
		b := m.batches[t.queue[0]]
		if b.status == "in_progress" && !b.expired && b.next < len(b.costs) {
			break
		}
		t.queue = t.queue[1:]
	}
	return len(t.back)+len(t.queue) > 0
}

// claimed checks a claim against what it should be, and takes note of it.
func (m *model) claimed(t *testing.T, j *job, dead bool) *modelClaim {
	who := m.next()
	b := m.batches[j.batch]
	if it := m.tenants[b.tenant]; who != nil && it.in && it.tag == who.tag && it.place == who.place && m.tidy(it) {
		who = it // they entered together
	}
	if who == nil || m.tenants[b.tenant] != who {
		t.Fatalf("job %s was claimed, and it is the turn of %+v", key(j), who)
	}
	switch {
	case len(who.back) > 0:
		if !who.back[key(j)] {
			t.Fatalf("job %s was claimed, not one of those that went back: %v", key(j), who.back)
		}
		delete(who.back, key(j))
	case who.queue[0] != j.batch || j.number != int64(b.next):
		t.Fatalf("job %s was claimed, next is %s/%d", key(j), who.queue[0], m.batches[who.queue[0]].next)
	default:
		if b.next++; b.next == len(b.costs) {
			who.queue = who.queue[1:]
		}
	}
	if n := len(m.claims); n > 0 && m.claims[n-1].job.claim >= j.claim {
		t.Fatalf("claim %d follows claim %d", j.claim, m.claims[n-1].job.claim)
	}
	c := &modelClaim{job: j, cost: b.costs[j.number], batch: b, dead: dead}
	m.v = max(m.v, who.tag)
	m.enter(who, who.tag+float64(c.cost)/who.weight)
	for _, other := range m.tenants { // what is behind v is forgotten
		other.kept = other.kept && other.tag > m.v
	}
	if b.running[j.number] != nil || b.results[j.number] != "" {
		t.Fatalf("job %s was claimed while it ran, or after it ended", key(j))
	}
	b.running[j.number] = c
	m.claims = append(m.claims, c)
	return c
}

// end closes a batch if it has all its results.
func (m *model) end(b *modelBatch) {
	if len(b.results) == len(b.costs) {
		switch {
		case b.status == "cancelling":
			b.status = "cancelled"
		case b.status == "finalizing":
			b.status = "expired"
		default:
			b.status = "completed"
		}
	}
}

// tape is one run of random operations on both.
type tape struct {
	*testing.T
	*model
	rng   *rand.Rand
	store store
	names []string // of batches
	made  int      // files
}

var tenantWeights = map[string]float64{"t1": 1, "t2": 3, "t3": 0.5}

const boundJobs = 40

func newTape(t *testing.T, r *plain, rng *rand.Rand) *tape {
	tp := &tape{T: t, rng: rng, store: store{r}, model: &model{tenants: map[string]*modelTenant{}, batches: map[string]*modelBatch{}}}
	for name, w := range tenantWeights {
		tp.tenants[name] = &modelTenant{weight: w, back: map[string]bool{}}
	}
	return tp
}

// ok ends the tape at an error.
func (tp *tape) ok(err error) {
	tp.Helper()
	if err != nil {
		tp.Fatal(err)
	}
}

func (tp *tape) submit() {
	name := []string{"t1", "t2", "t3"}[tp.rng.IntN(3)]
	who := tp.tenants[name]
	tp.made++
	n, id := 1+tp.rng.IntN(8), fmt.Sprintf("batch_%d", tp.made)
	f := upload{tenant: name, id: "file-" + id, name: "in", life: time.Hour, most: 1000}
	var lines []string
	var costs strings.Builder
	b := &modelBatch{tenant: name, status: "in_progress", results: map[int64]string{}, running: map[int64]*modelClaim{}}
	for i := range n {
		c := 1 + tp.rng.Int64N(1000)
		b.costs = append(b.costs, c)
		lines = append(lines, fmt.Sprintf(`{"custom_id":"%d"}`, i))
		fmt.Fprintf(&costs, "%010d", c)
	}
	cut := tp.rng.IntN(n)
	for range 1 + tp.rng.IntN(2) { // an answer may be lost, and the call made again
		_, err := tp.store.put(tp.Context(), f, 0, lines[:cut], -1)
		tp.ok(err)
	}
	_, err := tp.store.put(tp.Context(), f, int64(cut), lines[cut:], int64(n))
	tp.ok(err)
	deadline := "3600000"
	if b.expired = tp.rng.IntN(8) == 0; b.expired {
		deadline = "0"
	}
	args := []string{name, id, f.id, deadline, "3600000", fmt.Sprint(who.weight),
		number(boundJobs), "1000", "out-" + id, "err-" + id, "endpoint", "/v1/x"}
	said, err := tp.store.submit(tp.Context(), args)
	tp.ok(err)
	if who.owed+n > boundJobs {
		if said.text(0) != "jobs" || said.int(1) != int64(who.owed) || said.int(2) != int64(n) {
			tp.Fatalf("%s owes %d, submits %d, may have %d: %v", name, who.owed, n, boundJobs, said)
		}
		return
	}
	if said.text(0) != "ok" {
		tp.Fatalf("submit: %v", said)
	}
	tp.names = append(tp.names, id)
	tp.batches[id] = b
	who.owed += n
	ok, err := tp.store.check(tp.Context(), id, 0, costs.String(), "start", "", time.Hour)
	tp.ok(err)
	if !ok {
		tp.Fatalf("%s did not start", id)
	}
	who.queue = append(who.queue, id)
	tp.settle(who)
}

func (tp *tape) claim(n int, dead bool) []*modelClaim {
	lease := time.Hour
	if dead {
		lease = 0
	}
	jobs, _, lost, err := tp.store.claim(tp.Context(), n, lease)
	tp.ok(err)
	if want := tp.reap(); lost != want {
		tp.Fatalf("%d claims were found lost, want %d", lost, want)
	}
	var out []*modelClaim
	for _, j := range jobs {
		out = append(out, tp.claimed(tp.T, j, dead))
	}
	if len(jobs) < n {
		if who := tp.next(); who != nil {
			tp.Fatalf("%d of %d claimed, and there is more: %+v", len(jobs), n, who)
		}
	}
	return out
}

// done records a result for any claim ever made.
func (tp *tape) done(c *modelClaim) {
	kind, cost := "oe"[tp.rng.IntN(2):][:1], int64(-1)
	if tp.rng.IntN(2) == 0 {
		cost = 1 + tp.rng.Int64N(2000)
	}
	result := fmt.Sprintf("%s by %d at %d", key(c.job), c.job.claim, tp.rng.IntN(1e9))
	said, err := tp.store.done(tp.Context(), c.job, kind, result, cost)
	tp.ok(err)
	b, i := c.batch, c.job.number
	who := tp.tenants[b.tenant]
	mine := b.running[i] == c
	if mine {
		delete(b.running, i)
		if cost >= 0 {
			tp.correct(who, cost-c.cost)
		}
	}
	want := int64(doneRecorded)
	if b.results[i] != "" {
		want = doneBefore
	} else {
		b.results[i] = kind + result
		delete(b.running, i)
		delete(who.back, key(c.job))
		who.owed--
		tp.end(b)
	}
	if said != want {
		tp.Fatalf("result of %s by claim %d: %d, want %d", key(c.job), c.job.claim, said, want)
	}
}

func (tp *tape) giveBack(c *modelClaim) {
	ours, err := tp.store.back(tp.Context(), c.job, 0, 0)
	tp.ok(err)
	mine := c.batch.running[c.job.number] == c
	if ours != mine {
		tp.Fatalf("claim %d of %s is its own: %v, want %v", c.job.claim, key(c.job), ours, mine)
	}
	if mine {
		who := tp.tenants[c.batch.tenant]
		delete(c.batch.running, c.job.number)
		tp.correct(who, -c.cost)
		if c.batch.status == "in_progress" {
			who.back[key(c.job)] = true
		}
		tp.settle(who)
	}
}

func (tp *tape) renew(c *modelClaim) {
	lost, err := tp.store.renew(tp.Context(), []*job{c.job}, time.Hour)
	tp.ok(err)
	mine := c.batch.running[c.job.number] == c
	if mine == (len(lost) > 0) {
		tp.Fatalf("claim %d of %s runs: %v, lost: %v", c.job.claim, key(c.job), mine, lost)
	}
	c.dead = c.dead && !mine
}

func (tp *tape) cancel(id string) {
	b := tp.batches[id]
	said, err := tp.store.cancel(tp.Context(), b.tenant, id)
	tp.ok(err)
	want := "ok"
	switch b.status {
	case "in_progress":
		b.status = "cancelling"
		who := tp.tenants[b.tenant]
		who.queue = slices.DeleteFunc(who.queue, func(q string) bool { return q == id })
	case "cancelling", "cancelled":
	default:
		want = "ended"
	}
	if said.text(0) != want {
		tp.Fatalf("cancelling %s (%s): %v, want %s", id, b.status, said, want)
	}
}

// void ends what does not run of a batch that was cancelled or expired.
func (tp *tape) void(id string) {
	b := tp.batches[id]
	ending := "cancelled"
	if b.expired {
		ending = "expired"
	}
	jobs := map[int64]string{}
	for i := range b.costs {
		jobs[int64(i)] = "void"
	}
	left, err := tp.store.void(tp.Context(), id, ending, 0, jobs)
	tp.ok(err)
	if b.status != "cancelling" && b.status != "finalizing" && !(b.status == "in_progress" && b.expired) {
		if left != -1 {
			tp.Fatalf("%s has ended as %s, and %d are left", id, b.status, left)
		}
		return
	}
	if b.status == "in_progress" {
		b.status = "finalizing"
	}
	who := tp.tenants[b.tenant]
	who.queue = slices.DeleteFunc(who.queue, func(q string) bool { return q == id })
	for i := range b.costs {
		n := int64(i)
		if b.running[n] == nil && b.results[n] == "" {
			b.results[n] = "evoid"
			delete(who.back, id+"/"+number(n))
			who.owed--
		}
	}
	if want := int64(len(b.costs) - len(b.results)); left != want {
		tp.Fatalf("%s: %d are left, want %d", id, left, want)
	}
	tp.end(b)
}

// same compares a batch with the model: its status, its counts, and of one that has
// ended every line of its files.
func (tp *tape) same(id string) {
	b := tp.batches[id]
	got, err := tp.store.get(tp.Context(), "b", b.tenant, id)
	tp.ok(err)
	if got["status"] != b.status || got.int("completed")+got.int("failed") != int64(len(b.results)) {
		tp.Fatalf("%s is %v, want %s with %d results", id, got, b.status, len(b.results))
	}
	if len(b.results) < len(b.costs) {
		return
	}
	var want, have []string
	for _, r := range b.results {
		want = append(want, r)
	}
	for kind, file := range map[string]string{"o": "out-" + id, "e": "err-" + id} {
		lines, err := tp.store.lines(tp.Context(), file, 0, 1<<20)
		tp.ok(err)
		for _, l := range lines {
			have = append(have, kind+l)
		}
		f, err := tp.store.get(tp.Context(), "f", b.tenant, file)
		tp.ok(err)
		if (f != nil) != (len(lines) > 0) || f != nil && f.int("lines") != int64(len(lines)) {
			tp.Fatalf("%s has %d lines, and is told of as %v", file, len(lines), f)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		tp.Fatalf("%s ended with\n%q, want\n%q", id, have, want)
	}
}

func (tp *tape) step() {
	anyClaim := func(f func(*modelClaim)) {
		if n := len(tp.claims); n > 0 {
			f(tp.claims[max(0, n-1-tp.rng.IntN(12))])
		}
	}
	anyBatch := func(f func(string)) {
		if n := len(tp.names); n > 0 {
			f(tp.names[max(0, n-1-tp.rng.IntN(10))])
		}
	}
	switch tp.rng.IntN(16) {
	case 0, 1:
		tp.submit()
	case 2, 3, 4, 5:
		tp.claim(1+tp.rng.IntN(4), tp.rng.IntN(3) == 0)
	case 6, 7, 8, 9:
		anyClaim(tp.done)
	case 10, 11:
		anyClaim(tp.giveBack)
	case 12:
		anyClaim(tp.renew)
	case 13:
		if tp.rng.IntN(4) == 0 {
			anyBatch(tp.cancel)
		}
	case 14:
		anyBatch(tp.void)
	case 15:
		anyBatch(tp.same)
	}
}

// finish runs everything to its end and compares all of it.
func (tp *tape) finish() {
	for range 10_000 {
		claims := tp.claim(8, false)
		for _, c := range claims {
			tp.done(c)
		}
		if len(claims) == 0 {
			break
		}
	}
	for _, c := range tp.claims { // those that nobody took again, of batches that end early
		if c.batch.running[c.job.number] == c {
			tp.done(c)
		}
	}
	for _, id := range tp.names {
		tp.void(id)
		tp.same(id)
		if s := tp.batches[id].status; s == "in_progress" || s == "cancelling" || s == "finalizing" {
			tp.Fatalf("%s is still %s", id, s)
		}
	}
	for name, who := range tp.tenants {
		if who.owed != 0 {
			tp.Fatalf("%s owes %d", name, who.owed)
		}
	}
}

// TestTape: whatever happens in whichever order, jobs are claimed in the order of the
// model, nothing is lost, and every job has exactly the result that came first.
func TestTape(t *testing.T) {
	run := func(t *testing.T, r *plain) {
		s := *seed
		if s == 0 {
			s = rand.Uint64N(math.MaxInt64)
		}
		t.Logf("seed %d", s)
		tp := newTape(t, r, rand.New(rand.NewPCG(s, 7)))
		steps := 600
		if strings.HasSuffix(t.Name(), "miniredis") {
			steps = 80 // it compiles a script anew for each call
		}
		for range steps {
			tp.step()
		}
		tp.finish()
	}
	servers(t, run)
	// A cluster minds keys that a call did not name.
	t.Run("cluster", func(t *testing.T) { run(t, dial(t, redisproc.StartLone(t).Addr())) })
}
