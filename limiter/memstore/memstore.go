package memstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// DefaultLeaseTTL is how long a crashed replica's slots stay taken.
const DefaultLeaseTTL = 10 * time.Second

// Memory is the shared server: the state that all replicas of a fleet decide
// on. It is safe for concurrent use and has no goroutine.
type Memory struct {
	mu    sync.Mutex
	core  *core
	down  bool
	since time.Time // when down last changed
}

// New returns an empty Memory: every bucket full, every slot free.
func New() *Memory {
	return &Memory{core: newCore(), since: time.Now()}
}

// SetDown makes every replica's calls fail with limiter.ErrUnavailable until it
// is called again with false. State is kept, as in a Redis that hangs.
func (m *Memory) SetDown(down bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down, m.since = down, time.Now()
}

// Options describe one replica of a Memory. The zero value is ready to use.
type Options struct {
	Incarnation string        // identity of this process's life; default: random
	LeaseTTL    time.Duration // whole ms; zero means DefaultLeaseTTL
}

// Store is one replica's handle on a Memory. It implements limiter.Store.
type Store struct {
	m   *Memory
	inc string
	ttl int64 // ms

	// Guarded by m.mu.
	held   map[limiter.SlotID]int64
	seq    int64
	closed bool
}

var _ limiter.Store = (*Store)(nil)

// Replica adds a replica. Its slots live until Settle, Close, or the lease time
// after Crash. Incarnations of one Memory must differ.
func (m *Memory) Replica(o Options) *Store {
	s := &Store{m: m, inc: o.Incarnation, ttl: o.LeaseTTL.Milliseconds(), held: map[limiter.SlotID]int64{}}
	if s.inc == "" {
		s.inc = rand.Text()
	}
	if s.ttl == 0 {
		s.ttl = DefaultLeaseTTL.Milliseconds()
	}
	return s
}

// Admit implements limiter.Store.
func (s *Store) Admit(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return limiter.Verdict{}, err
	}
	leases, buckets := s.leasesLocked(t), charges(t)
	for i, c := range t.Charges {
		buckets[i].inTurn = c.InTurn
	}
	s.seq++
	r := s.m.core.admit(now(), s.callLocked(), buckets, leases)
	v := verdict(r.buckets, r.status == statusGranted)
	for i, claimed := range r.claimed {
		v.Charges[i].Contended = claimed
	}
	v.Full = make([]bool, len(r.leases))
	for i, full := range r.leases {
		v.Full[i] = full != leaseFits
		if v.OK {
			s.held[leases[i].key]++
		}
	}
	return v, nil
}

// Settle implements limiter.Store.
func (s *Store) Settle(f limiter.Settlement) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.closed {
		return
	}
	adjust := make([]bucketArg, len(f.Adjust))
	for i, a := range f.Adjust {
		adjust[i] = bucketOf(a.Bucket, a.Rate, a.Delta)
		adjust[i].maxDebt, adjust[i].tenant, adjust[i].weight = maxMicro, a.Tenant, a.Weight
	}
	leases := make([]leaseArg, 0, len(f.Free))
	for _, id := range f.Free {
		if s.held[id] == 0 {
			continue // never below zero
		}
		s.held[id]--
		at := slices.IndexFunc(leases, func(l leaseArg) bool { return l.key == id })
		if at < 0 { // one statement for each counter
			at, leases = len(leases), append(leases, leaseArg{key: id})
		}
		leases[at].held, leases[at].want = s.held[id], s.held[id]
		if s.held[id] == 0 {
			delete(s.held, id)
		}
	}
	s.seq++
	s.m.core.settle(now(), s.callLocked(), false, adjust, leases)
}

// Peek reports what Admit would find, without taking.
func (s *Store) Peek(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return limiter.Verdict{}, err
	}
	levels, states := s.m.core.inspect(now(), s.inc, charges(t), s.leasesLocked(t))
	v := verdict(levels, true)
	v.Full = make([]bool, len(states))
	for i, st := range states {
		v.Full[i] = st.total >= int64(t.Slots[i].Cap)
		v.OK = v.OK && !v.Full[i]
	}
	for _, c := range v.Charges {
		v.OK = v.OK && c.Wait == 0
	}
	return v, nil
}

// Held returns how many slots of id the whole fleet holds now.
func (s *Store) Held(id limiter.SlotID) int {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return int(s.m.core.leaseAt(now(), id, s.inc).total)
}

// Health implements limiter.Store.
func (s *Store) Health() limiter.Health {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.down {
		return limiter.Health{State: "down", Since: s.m.since}
	}
	return limiter.Health{Usable: true, State: "ok", Since: s.m.since}
}

// Close implements limiter.Store. It never fails.
func (s *Store) Close(context.Context) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.m.core.forget(s.inc)
	}
	return nil
}

// Crash ends the replica as kill -9 would: it is heard of no more, and its
// slots stay taken for the lease time, counted from a last renewal just now.
func (s *Store) Crash() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.m.core.renew(now(), s.inc, s.ttl)
	}
}

// now is the clock of all scripts, in µs.
func now() int64 { return time.Now().UnixMicro() }

func (s *Store) usableLocked(ctx context.Context) error {
	if s.closed {
		return fmt.Errorf("memstore: replica %s is closed: %w", s.inc, limiter.ErrUnavailable)
	}
	if s.m.down {
		return fmt.Errorf("memstore: set down: %w", limiter.ErrUnavailable)
	}
	return ctx.Err()
}

// forever is the lease time of the living, in ms: sharing a process with the
// store, they need no renewal. Crash alone gives them an end.
const forever = 1 << 50

func (s *Store) callLocked() call {
	return call{notAfter: math.MaxInt64, inc: s.inc, seq: s.seq, ttl: forever}
}

func (s *Store) leasesLocked(t limiter.Take) []leaseArg {
	leases := make([]leaseArg, len(t.Slots))
	for i, sl := range t.Slots {
		leases[i] = leaseArg{key: sl.Slot, cap: int64(sl.Cap), want: s.held[sl.Slot] + 1}
	}
	return leases
}

// maxMicro is the largest amount a bucket can hold or owe: doubles, which the
// scripts compute in, are exact up to here (9e9 tokens).
const maxMicro = 1<<53 - 1

// micro converts whole tokens, saturating at ±maxMicro.
func micro(tokens int64) int64 {
	const most = maxMicro / 1_000_000
	return min(most, max(-most, tokens)) * 1_000_000
}

func bucketOf(id limiter.BucketID, r limiter.Rate, cost int64) bucketArg {
	return bucketArg{key: id, limit: micro(r.Limit), period: r.Per.Microseconds(), burst: micro(r.Burst), cost: micro(cost)}
}

func charges(t limiter.Take) []bucketArg {
	args := make([]bucketArg, len(t.Charges))
	for i, c := range t.Charges {
		args[i] = bucketOf(c.Bucket, c.Rate, c.Cost)
	}
	return args
}

func verdict(levels []level, ok bool) limiter.Verdict {
	v := limiter.Verdict{OK: ok, Charges: make([]limiter.ChargeVerdict, len(levels))}
	for i, l := range levels {
		v.Charges[i].Remaining = int64(math.Floor(float64(l.remaining) / 1e6))
		v.Charges[i].Wait = wait(l.wait)
	}
	return v
}

// wait converts µs of a script's reply, of which -1 is never.
func wait(us int64) time.Duration {
	if us < 0 {
		return limiter.Never
	}
	return time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
}
