package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/workspace"
	"github.com/headway-limiter/headway/limiter"
)

// Reload puts cfg and limits in force together, or with an error neither. A key
// that is gone is refused from the next request on. Requests that are being
// served or wait finish by the tables they began with, over the upstreams of
// those. kept is what the limiter cannot change (see [limiter.Limiter.Reconfigure]).
func (g *Gateway) Reload(cfg *config.Config, limits limiter.Config) (kept []string, err error) {
	t, err := newTables(cfg, g.opts.Transport)
	if err == nil && g.opts.Slots == nil && len(agentsOf(cfg).Agents) > 0 {
		err = errNoSlots
	}
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g.reloading.Lock()
	defer g.reloading.Unlock()
	if kept, err = g.limiter.Reconfigure(limits); err != nil {
		return nil, err
	}
	old := g.tables.Load()
	t.inherit(old)
	g.tables.Store(t)
	g.workspaces.Declare(workspace.Seeds(cfg))
	g.agents.Configure(agentsOf(cfg))
	old.closeIdle(t)
	return kept, nil
}

// connects is what a connection pool depends on.
type connects struct {
	url      string
	timeouts config.UpstreamTimeouts
}

// pools lists the upstreams' connection pools.
func (t *tables) pools() map[connects]http.RoundTripper {
	all := map[connects]http.RoundTripper{}
	for _, up := range t.ups {
		all[connects{up.URL, up.Timeouts}] = up.transport
	}
	return all
}

// inherit takes over the open connections of old where they lead to the same place.
func (t *tables) inherit(old *tables) {
	open := old.pools()
	for _, up := range t.ups {
		if pool := open[connects{up.URL, up.Timeouts}]; pool != nil {
			up.transport = pool
		}
	}
}

// closeIdle closes idle connections to the upstreams, but for those that next
// goes on using; nil: all.
func (t *tables) closeIdle(next *tables) {
	var used map[connects]http.RoundTripper
	if next != nil {
		used = next.pools()
	}
	for _, up := range t.ups {
		c, ok := up.transport.(interface{ CloseIdleConnections() })
		if ok && used[connects{up.URL, up.Timeouts}] != up.transport {
			c.CloseIdleConnections()
		}
	}
}

// noFile is the answer where there is nothing to read.
const noFile = "there is no configuration file to read again: this replica was started without one"

// reload answers POST /-/reload: the configuration is read again, and either in
// force when the answer comes, or wrong, and the mistakes are told. Without a file
// that is a conflict: with how the replica was started, not with what was sent.
func (g *Gateway) reload(w http.ResponseWriter, _ *http.Request) {
	body := struct {
		Reloaded bool   `json:"reloaded"`
		Error    string `json:"error,omitempty"`
		// Restart names the changed fields that keep their old value until one.
		Restart []string `json:"restart_pending,omitempty"`
	}{Reloaded: true}
	status := http.StatusOK
	var err error
	if g.opts.Reload == nil {
		status, body.Reloaded, body.Error = http.StatusConflict, false, noFile
	} else if body.Restart, err = g.opts.Reload(); err != nil {
		status, body.Reloaded, body.Error = http.StatusUnprocessableEntity, false, err.Error()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who has left cannot be told
}
