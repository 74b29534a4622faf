package replica

import (
	"context"

	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/batch"
	"github.com/headway-limiter/headway/gateway/config"
)

// openBatch makes the service of files and batches, if there is to be one. It runs
// nothing before startBatch.
func (r *Replica) openBatch() (gateway.Files, error) {
	if !r.cfg.Load().Batch.Enabled {
		return nil, nil
	}
	var err error
	r.batch, err = batch.New(batch.Options{
		Config: func() config.Batch { return r.cfg.Load().Batch },
		Redis:  r.store, Logger: r.log, Registerer: r.registry,
		MayKeep: func(o gateway.Owner) error { return r.gateway.MayKeep(o) },
		Routed:  func(path string) bool { return r.gateway.Routed(path) },
	})
	if err != nil {
		return nil, err
	}
	return r.batch, nil
}

// startBatch begins to run jobs.
func (r *Replica) startBatch() {
	if r.batch != nil {
		r.batch.Start(r.gateway)
	}
}

// drainBatch ends claiming.
func (r *Replica) drainBatch() {
	if r.batch != nil {
		r.batch.Drain()
	}
}

// closeBatch waits for the jobs that run, and gives back those left when ctx ends.
func (r *Replica) closeBatch(ctx context.Context) {
	if r.batch != nil {
		r.batch.Close(ctx)
	}
}
