package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
)

// place is where in the space of URLs a request stands: whose settings hold for
// it, and who has to serve it.
//
//	/v1/...                  the key's own workspace, if it has one
//	/workspaces/{id}/v1/...  that workspace
//	/projects/{id}/v1/...    the project's workspace
//	/direct/{agent}/v1/...   the key's own, served by this agent at once or not at all
//
// These beginnings exist once there are workspaces, or agents; a path below one
// of them that names nothing is answered 404 and never passed on. Ids are
// compared as they are written: one that is escaped is unknown, so that no proxy
// on the way can read another name in a path than we do.
type place struct {
	workspace string // its id; empty: none, or not known before the key is
	project   string // through which it was reached; empty: none
	direct    string // name of the agent that has to serve; empty: any that can
	scoped    bool   // the path names workspace or project, so the key needs a role there
	path      string // what routes see, decoded, such as /v1/chat/completions
}

// The beginnings of paths that name a place.
const (
	inWorkspace = "workspaces"
	inProject   = "projects"
	atAgent     = "direct"
)

// locate finds the place of a request, keeps it, and returns the request as
// routes shall see it: without what names the place.
func (x *exchange) locate(r *http.Request) (*http.Request, *failure) {
	x.place.path = r.URL.Path
	space, id, rest := split(r.URL.EscapedPath())
	if word, err := url.PathUnescape(space); err != nil || !x.spaces[word] {
		return r, nil
	}
	wrong := unknownURL(r)
	inner, err := url.PathUnescape(rest)
	version, _, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if !x.spaces[space] || !config.PlaceID(id) || version != "v1" || err != nil {
		return nil, &wrong
	}
	p := place{path: inner, scoped: space != atAgent}
	switch space {
	case inWorkspace:
		p.workspace = id
	case inProject:
		p.project, p.workspace = id, x.projects[id]
	case atAgent:
		if p.direct = id; !slices.ContainsFunc(x.cfg.Upstreams, func(u config.Upstream) bool { return u.Name == id && isAgent(u) }) {
			f := unknownPlace("agent", id)
			return nil, &f
		}
	}
	x.place = p
	out, u := r.WithContext(r.Context()), *r.URL
	u.Path, u.RawPath = inner, rest
	out.URL = &u
	return out, nil
}

// split cuts an escaped path into its first two segments and the rest, which
// begins with a slash or is empty. Empty segments count.
func split(path string) (first, second, rest string) {
	first, rest, _ = strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		return first, rest[:at], rest[at:]
	}
	return first, rest, ""
}

// spaces are the beginnings of paths that name places, as far as there are any.
func spaces(cfg *config.Config) map[string]bool {
	out := map[string]bool{}
	if len(cfg.Workspaces) > 0 {
		out[inWorkspace], out[inProject] = true, true
	}
	if slices.ContainsFunc(cfg.Upstreams, isAgent) {
		out[atAgent] = true
	}
	return out
}

// isAgent reports whether requests may be sent to an upstream directly.
func isAgent(u config.Upstream) bool { return u.IsAgent() }

// projects is the workspace of each project.
func projects(cfg *config.Config) map[string]string {
	out := make(map[string]string, len(cfg.Projects))
	for _, p := range cfg.Projects {
		out[p.ID] = p.Workspace
	}
	return out
}

// enter checks that who may be where its request is, and finds the workspace of
// one whose path names none. Without a role a workspace is as unknown as one
// that does not exist, so that nobody can find out which there are.
func (x *exchange) enter(who caller) *failure {
	p := &x.place
	if !p.scoped {
		p.workspace = who.by.workspace
		return nil
	}
	if who.by.roles[p.workspace] != "" {
		return nil
	}
	f := unknownPlace("workspace", p.workspace)
	if p.project != "" {
		f = unknownPlace("project", p.project)
	}
	return &f
}

// unknownPlace does not say whether it is the place or the role that is missing.
func unknownPlace(kind, id string) failure {
	f := failure{status: http.StatusNotFound, kind: kindInvalid, code: kind + "_not_found",
		message: fmt.Sprintf("There is no %s %q.", kind, shorten(id))}
	if kind != "agent" {
		f.message = fmt.Sprintf("There is no %s %q, or the API key has no role in it.", kind, shorten(id))
	}
	return f
}

// queues reports whether a request that finds all agents busy may wait for one:
// not on a direct path, and elsewhere as the workspace says. A workspace that
// never said, or whose document cannot be read, queues. So do the steps of a turn:
// the setting is what a caller is owed, not how our own work is ordered.
func (g *Gateway) queues(_ context.Context, x *exchange) bool {
	p := x.place
	return p.direct == "" && (x.inner || p.workspace == "" || g.workspaces.Queues(p.workspace))
}
