package gateway

import (
	"errors"

	"github.com/headway-limiter/headway/gateway/workspace"
)

// MayKeep returns nil if something of what owner sends may be stored beyond the
// answer, as files and batches are. The error is workspace.ErrRetention where its
// workspace keeps nothing, and wraps limiter.ErrUnavailable where that is not known:
// then, too, nothing may be kept.
//
// The workspace is that of owner's place, or else the key's own. For a key that has
// none, all those in which it has a role must agree.
//
// The gateway itself stores nothing of a body, and logs nothing of it at any level,
// whatever the workspace says: logs hold ids of requests and names of upstreams.
func (g *Gateway) MayKeep(owner Owner) error {
	t := g.tables.Load()
	id, all := t.workspaceOf(owner)
	if id != "" {
		return g.workspaces.MayKeep(id)
	}
	var errs []error
	for id := range all {
		errs = append(errs, g.workspaces.MayKeep(id))
	}
	err := errors.Join(errs...)
	if errors.Is(err, workspace.ErrRetention) {
		return workspace.ErrRetention
	}
	return err
}

// workspaceOf is the workspace of what owner sends, or none and those in which its
// key has a role.
func (t *tables) workspaceOf(owner Owner) (id string, all map[string]string) {
	space, name, _ := split(owner.Place)
	switch space {
	case inWorkspace:
		return name, nil
	case inProject:
		return t.projects[name], nil
	}
	for _, p := range t.keys {
		if p.id == owner.Key {
			return p.workspace, p.roles
		}
	}
	return "", nil
}
