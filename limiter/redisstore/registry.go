package redisstore

import (
	"sync/atomic"

	"github.com/headway-limiter/headway/limiter"
)

// registry is what Redis has told of the fleet, by the presence of its replicas.
type registry struct {
	replicas  atomic.Int64 // 0 before the first answer
	forgotten atomic.Int64
}

// counted takes the answer to a statement of presence: what was stored of this
// replica before, and of all now.
func (r *registry) counted(before, total int64) {
	if r.replicas.Swap(total) > 0 && before == 0 {
		r.forgotten.Add(1)
	}
}

// Replicas returns how many replicas Redis counted last, 0 before its first
// answer. A statement is made at 3/10 of the ttl at the latest; one that died
// counts until its ttl is over.
func (s *Store) Replicas() int { return int(s.replicas.Load()) }

// Forgotten counts how often Redis had lost the entries of this replica: by
// expiry, while it was out of reach for longer than the ttl, or with all data.
func (s *Store) Forgotten() int64 { return s.registry.forgotten.Load() + s.epochs.lost.Load() }

// Hold adds a slot to those held, without asking: its request runs, and was
// admitted without Redis. It is stated with the next word to Redis, even above
// its cap, and given back by Settle.
func (s *Store) Hold(id limiter.SlotID) { s.slots.hold(id) }
