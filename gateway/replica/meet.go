package replica

import (
	"context"
	"time"
)

// partTimeout bounds the time for which a replica that ends tries to take its
// address out of the store, where it lapses within a minute anyway.
const partTimeout = 200 * time.Millisecond

// registryOfFleet is where replicas find each other's gossip; nil if nobody else
// can see it, the store being inside this process.
func (r *Replica) registryOfFleet() func(context.Context, string) ([]string, error) {
	if r.embedded != nil {
		return nil
	}
	return r.store.Meet
}

// part takes this replica's address out of the store, which must be open still.
func (r *Replica) part(ctx context.Context) {
	if r.node == nil || r.embedded != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	if err := r.store.Part(ctx, r.node.Addr()); err != nil {
		r.log.Debug("gossip address stays in the store for a minute", "err", err)
	}
}
