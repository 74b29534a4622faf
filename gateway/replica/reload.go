package replica

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/series"
)

// reloads is how a replica follows changes of its configuration.
type reloads struct {
	load    func() (*config.Config, error) // nil: there is nothing to read
	files   []*watch                       // with TLS of listeners, watched beside the configuration
	metrics reloadMetrics
	stop    chan struct{}
	stopped sync.WaitGroup

	mu sync.Mutex // one at a time
}

// reloadMetrics say what is in force, since when, and whether the file is right.
type reloadMetrics struct {
	successful prometheus.Gauge
	since      prometheus.Gauge
	pending    prometheus.Gauge
	info       *prometheus.GaugeVec
}

// openReloads registers what is told of the configuration and begins to watch its
// file.
func (r *Replica) openReloads(opts Options, peers limiter.Fleet) error {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "headway", Subsystem: "config", Name: name, Help: help})
	}
	m := reloadMetrics{
		successful: gauge("last_reload_successful", "Whether the configuration was right when it was read last."),
		since:      gauge("last_reload_success_timestamp_seconds", "When the configuration in force was read."),
		pending:    gauge("restart_pending_fields", "Changed fields that wait for a restart."),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "headway", Subsystem: "config", Name: "info",
			Help: "Always 1; the label is the hash of the configuration in force, as gossip tells it.",
		}, []string{"hash"}),
	}
	versions := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "headway", Subsystem: "fleet", Name: "configurations",
		Help: "Different configurations in force among the replicas heard of lately, this one included; above 1 they have drifted apart.",
	}, func() float64 { return float64(r.configurations(peers)) })
	if err := series.Register(r.registry, m.successful, m.since, m.pending, m.info, versions); err != nil {
		return fmt.Errorf("replica: metrics: %w", err)
	}
	r.reloads.metrics, r.reloads.load = m, opts.Load
	r.reloads.stop = make(chan struct{})
	m.adopted(r.cfg.Load())
	if opts.File != "" && opts.Load != nil {
		w := watch{file: opts.File}
		w.changed()
		if now, err := opts.Load(); err != nil || !reflect.DeepEqual(now, r.cfg.Load()) {
			w.pending = true // it has changed while this replica was starting
		}
		r.reloads.stopped.Go(func() {
			w.run(r.reloads.stop, r.changed("the configuration file", w.file), r.lost("the configuration file", w.file))
		})
		for _, w := range r.reloads.files { // what is new in one is read together with the others
			r.reloads.stopped.Go(func() {
				w.run(r.reloads.stop, r.changed("a TLS file", w.file), r.lost("a TLS file", w.file))
			})
		}
	}
	return nil
}

// changed returns what to do when a watched file says something new.
func (r *Replica) changed(what, file string) func() {
	return func() {
		r.log.Info(what+" has changed", "file", file)
		_ = r.Reload() // it says itself what is wrong
	}
}

// adopted tells that cfg is in force from now on.
func (m *reloadMetrics) adopted(cfg *config.Config) {
	m.successful.Set(1)
	m.since.Set(float64(time.Now().UnixNano()) / 1e9)
	m.info.Reset()
	m.info.WithLabelValues(cfg.Hash()).Set(1)
}

// configurations counts the different hashes in the fleet.
func (r *Replica) configurations(peers limiter.Fleet) int {
	seen := map[string]bool{r.cfg.Load().Hash(): true}
	for _, d := range peers.View().Replicas {
		seen[d.Config] = true
	}
	return len(seen)
}

// reloader is what POST /-/reload calls; nil where there is nothing to read.
func (r *Replica) reloader(opts Options) func() ([]string, error) {
	if opts.Load == nil {
		return nil
	}
	return r.reload
}

// errNoFile is the answer of a replica that was not started from a file.
var errNoFile = errors.New("replica: there is no configuration file to read again")

// Reload reads the configuration again. It is in force when Reload returns, but
// for fields that need a restart, which are logged, one warning each; or it is
// wrong, nothing changes, and the error has every mistake. Requests under way
// and in line go on (see [gateway.Gateway.Reload]).
func (r *Replica) Reload() error {
	_, err := r.reload()
	return err
}

// reload is Reload, and names the changed fields that wait for a restart.
func (r *Replica) reload() (restart []string, err error) {
	r.reloads.mu.Lock()
	defer r.reloads.mu.Unlock()
	if r.reloads.load == nil {
		r.log.Warn("nothing has changed", "error", errNoFile)
		return nil, errNoFile
	}
	next, err := r.reloads.load()
	if err == nil {
		restart, err = r.adopt(next)
	}
	if err != nil {
		r.reloads.metrics.successful.Set(0)
		r.log.Error("the configuration is wrong: what was in force stays", "error", err)
	}
	return restart, err
}

// lost returns what to do when a watched file cannot be read: a restart would fail.
func (r *Replica) lost(what, file string) func(error) {
	return func(err error) {
		r.reloads.mu.Lock()
		defer r.reloads.mu.Unlock()
		r.log.Error(what+" cannot be read: what was in force stays", "file", file, "error", err)
		r.reloads.metrics.successful.Set(0)
	}
}

// adopt puts next in force as far as a running replica can, and names the fields
// in which it cannot.
func (r *Replica) adopt(next *config.Config) (waiting []string, err error) {
	effective, restart, err := r.cfg.Load().Change(next)
	if err != nil {
		return nil, fmt.Errorf("replica: with what stays until a restart: %w", err)
	}
	adoptTLS, err := r.readTLS()
	if err != nil {
		return nil, err
	}
	limits := effective.Limiter()
	kept, err := r.gateway.Reload(effective, limits)
	if err != nil {
		return nil, err
	}
	r.cfg.Store(effective)
	adoptTLS()
	r.share.SetPolicy(outageOf(limits))
	if r.service != nil {
		r.service.Reconfigure(meaning(effective.RateLimitService))
	}
	if r.node != nil {
		r.node.SetConfigHash(effective.Hash())
	}
	r.reloads.metrics.adopted(effective)
	r.reloads.metrics.pending.Set(float64(len(restart)))
	for _, w := range effective.Warnings() {
		r.log.Warn("configuration", "warning", w.String())
	}
	for _, p := range restart {
		r.log.Warn("configuration: restart needed", "warning", p.String())
		waiting = append(waiting, p.Path)
	}
	if len(kept) > 0 { // Change should have named it
		r.log.Error("replica: the limiter kept what was to be changed", "kept", kept)
	}
	r.log.Info("configuration in force", "hash", effective.Hash(), "restart_pending", len(restart))
	return waiting, nil
}

// closeReloads ends the watch.
func (r *Replica) closeReloads() {
	if r.reloads.stop != nil {
		close(r.reloads.stop)
		r.reloads.stopped.Wait()
	}
}
