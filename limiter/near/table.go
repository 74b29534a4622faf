package near

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// shards divide the lock: callers of different buckets rarely meet.
const shards = 64

// entry is what is known here of one bucket. Its shard's lock guards it.
type entry struct {
	home   *shard
	bucket limiter.BucketID
	rate   limiter.Rate
	bound  bound
	lease  lease
	told   int64         // whole tokens, as the store last told
	owed   int64         // charged by this replica since then
	heard  time.Duration // when it did
	scout  time.Duration // one caller is finding out; until then the others wait
	// calm is when prefetch may begin: a while after others were seen to wait.
	calm time.Duration
	// claimed is until when the bucket is taken to have claims on its turns,
	// which only the store can tell.
	claimed time.Duration
	touched time.Duration // last looked up
}

// never is an instant long before the Store began.
const never = -time.Hour

// trust is how long what was heard may be relied on. From an empty bucket of
// requests nobody can take, so only what comes back elsewhere goes unnoticed;
// what is there may be gone soon, and token budgets are charged afterwards too.
func (e *entry) trust(now time.Duration) time.Duration {
	if e.bucket.Class == limiter.Requests && e.bound.set && e.bound.level(now, e.rate) < 1 {
		return belief
	}
	return glance
}

// stale reports whether what was heard may not be relied on any more.
func (e *entry) stale(now time.Duration) bool { return now-e.heard > e.trust(now) }

// believed reports whether the caller may rely on what was heard. When that is
// stale, one caller may not and finds out, and the others wait for its answer.
func (e *entry) believed(now time.Duration) bool {
	switch old := now - e.heard - e.trust(now); {
	case old <= 0:
		return true
	case !e.bound.set || old > scoutEvery || now >= e.scout:
		e.scout = now + scoutEvery
		return false
	}
	return true
}

// settle learns that this replica corrects the bucket by delta. A debt shows at
// once, in what is told and to requests that cost nothing.
func (e *entry) settle(delta int64) {
	if delta > 0 {
		e.bound.give(delta)
		return
	}
	e.told += delta
	e.owed -= delta
	e.lease.left += delta
}

// remaining is what a refusal tells of the bucket, in whole tokens: what fits the
// wait that is told, with the refill and what was given back here since the
// store was heard, without what was charged here. It is below the cost that is
// refused, even where the pause after a refusal outlasts the refill.
func (e *entry) remaining(now time.Duration, cost int64, refused bool) int64 {
	if !e.bound.set {
		return e.told
	}
	left := int64(e.bound.level(now, e.rate)) - e.bound.pending - e.owed
	if e.bound.loose {
		left--
	}
	if refused {
		left = min(left, cost-1)
	}
	return left
}

// putBackLocked returns n tokens to the lease that paid them.
func (e *entry) putBackLocked(n int64) {
	if n > 0 {
		e.lease.tokens += n
		e.home.leased[e] = struct{}{}
	}
}

// table is the entries of a Store, sharded, at most about most of them.
type table struct {
	seed   maphash.Seed
	most   int // entries of one shard
	shards [shards]shard
}

// shard is a part of the table.
type shard struct {
	mu      sync.Mutex
	entries map[limiter.BucketID]*entry
	leased  map[*entry]struct{} // those whose lease holds tokens, and a few that did
	swept   time.Duration
	dropped int // not kept for want of room
}

func newTable(most int) *table {
	t := &table{seed: maphash.MakeSeed(), most: max(1, most/shards)}
	for i := range t.shards {
		t.shards[i].entries = map[limiter.BucketID]*entry{}
		t.shards[i].leased = map[*entry]struct{}{}
		t.shards[i].swept = -sweepEvery
	}
	return t
}

func (t *table) shard(b limiter.BucketID) *shard {
	return &t.shards[maphash.Comparable(t.seed, b)%shards]
}

// sizes counts entries, and those that found no room since the beginning.
func (t *table) sizes() (entries, dropped int) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		entries += len(sh.entries)
		dropped += sh.dropped
		sh.mu.Unlock()
	}
	return entries, dropped
}

// sweepEvery is the least pause between two sweeps of a full shard.
const sweepEvery = 100 * time.Millisecond

// makeLocked returns the entry of b, new if need be; nil if there is no room.
func (sh *shard) makeLocked(now time.Duration, b limiter.BucketID, r limiter.Rate, most int) *entry {
	if e := sh.entries[b]; e != nil {
		return e
	}
	if len(sh.entries) >= most {
		if now-sh.swept >= sweepEvery {
			sh.sweepLocked(now)
		}
		if len(sh.entries) >= most {
			sh.dropped++
			return nil
		}
	}
	e := &entry{home: sh, bucket: b, rate: r, touched: now, heard: never}
	sh.entries[b] = e
	return e
}

// sweepLocked forgets entries that tell nothing: what the store said is old, no
// call is under way, no lease is held and none was lately.
func (sh *shard) sweepLocked(now time.Duration) {
	sh.swept = now
	for b, e := range sh.entries {
		if now-e.heard > belief && now-e.touched > belief && e.bound.pending == 0 && e.lease.tokens == 0 && e.lease.flight == nil {
			delete(sh.entries, b)
		}
	}
}
