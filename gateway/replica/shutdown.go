package replica

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// closeGrace bounds the last words of a replica: slots given back, goodbye to
	// the fleet.
	closeGrace = 3 * time.Second
	// storeGrace is how much of it a store that does not answer may take.
	storeGrace = 2 * time.Second
)

// Shutdown leaves in order. It returns when everything is closed; if ctx ends
// first, what still runs is cut off.
func (r *Replica) Shutdown(ctx context.Context) (err error) {
	r.end.Do(func() {
		r.gateway.Drain()
		r.drainBatch()
		drain := r.cfg.Load().Server.Drain
		select {
		case <-time.After(drain.Delay):
		case <-ctx.Done():
		}
		grace, cancel := context.WithTimeout(ctx, drain.Grace)
		defer cancel()
		if err = r.api.Shutdown(grace); err != nil {
			err = fmt.Errorf("replica: requests still running after %v were cut off: %w", drain.Grace, err)
			r.api.Close()
		}
		r.gateway.EndSessions(grace)
		r.closeBatch(grace)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		err = errors.Join(err, r.close(last))
	})
	return err
}

// close ends what has been opened so far.
func (r *Replica) close(ctx context.Context) error {
	r.closeReloads()
	r.closeBatch(ctx)
	var errs []error
	if r.service != nil {
		r.service.Close(ctx)
	}
	if r.gateway != nil {
		r.gateway.Close()
	}
	if r.workspaces != nil {
		r.workspaces.Close()
	}
	if r.limiter != nil {
		r.limiter.Close()
	}
	if r.cost != nil {
		r.cost.Close()
	}
	r.part(ctx)
	r.closeStore(ctx)
	if r.node != nil {
		errs = append(errs, r.node.Close(ctx))
	}
	for _, s := range []*server{r.api, r.admin} {
		if s != nil {
			errs = append(errs, s.Close())
			s.listener.Close() // if it was never served on, nobody else does
		}
	}
	if r.embedded != nil {
		r.embedded.Close()
	}
	return errors.Join(errs...)
}

// closeStore gives back what this replica holds. Where that cannot be told, nothing
// is wrong with this end: it lapses by itself.
func (r *Replica) closeStore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeGrace)
	defer cancel()
	var err error
	switch {
	case r.near != nil:
		err = r.near.Close(ctx) // and what is behind
	case r.share != nil:
		err = r.share.Close(ctx)
	case r.store != nil:
		err = r.store.Close(ctx)
	}
	if err != nil {
		r.log.Warn("the store could not be told of all that was given back: slots lapse after lease_ttl, and unsettled tokens stay taken",
			"lease_ttl", r.cfg.Load().RateLimiting.LeaseTTL.String(), "store", r.store.Health().State, "err", err)
	}
}
