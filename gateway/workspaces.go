package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/workspace"
	"github.com/headway-limiter/headway/limiter"
)

// maxPatch bounds a change of a document, in bytes.
const maxPatch config.Size = 64 << 10

// actor is who reads or changes documents.
type actor struct {
	by    string                        // for audit lines: admin, or key:<id>
	roles func(workspace string) string // empty: none there
}

// admin is whoever may use the admin listener, and owns every workspace.
var admin = actor{by: "admin", roles: func(string) string { return config.RoleOwner }}

// holder is who has a key.
func (p principal) holder() actor {
	return actor{by: "key:" + p.id, roles: func(id string) string { return p.roles[id] }}
}

// workspaceView is a document as it is told. Flags are what is in force: one that was
// never set is its default.
type workspaceView struct {
	ID        string    `json:"id"`
	Object    string    `json:"object"` // always workspace
	Name      string    `json:"name"`
	Queueing  bool      `json:"inference_queueing_enabled"`
	Retention bool      `json:"zero_data_retention"`
	Published bool      `json:"published"`
	Version   int64     `json:"version"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	UpdatedBy string    `json:"updated_by"`
	ETag      string    `json:"etag"` // what If-Match takes
	Role      string    `json:"role"` // of who asks
}

func viewOf(d workspace.Document, role string) workspaceView {
	return workspaceView{
		ID: d.ID, Object: "workspace", Name: d.Name, Queueing: d.Queues(), Retention: d.Retention, Published: d.Published,
		Version: d.Version, UpdatedAt: d.At, UpdatedBy: d.By, ETag: d.ETag(), Role: role,
	}
}

// listView is a list, in the shape of OpenAI's.
type listView struct {
	Object string `json:"object"` // always list
	Data   any    `json:"data"`
}

// serveWorkspaces answers requests about workspaces themselves. There are none
// unless workspaces are declared; false: it is another request.
func (g *Gateway) serveWorkspaces(x *exchange, r *http.Request) bool {
	if !x.spaces[inWorkspace] {
		return false
	}
	path := r.URL.Path
	if path == "/api/workspaces" || strings.HasPrefix(path, "/api/workspaces/") || strings.HasPrefix(path, "/api/projects/") {
		g.manage(x, r)
		return true
	}
	return g.manifest(x, r)
}

// manage answers a request to /api/workspaces or /api/projects by the holder of an
// API key. It is charged to the limits before authentication alone: who has used up
// a budget must still be able to change how that is treated.
func (g *Gateway) manage(x *exchange, r *http.Request) {
	who, wrong := x.identify(r)
	if wrong != nil {
		x.fail(*wrong)
		return
	}
	if who.standing != known {
		g.deny(x, r, who)
		return
	}
	grant := g.admit(x, r.Context(), x.atDoor(who))
	if grant == nil {
		return
	}
	defer grant.Done(limiter.Outcome{Tokens: unknownTokens})
	g.metrics.decide("admitted", noLimit)
	if f := g.documents(x, r, x.tables, who.by.holder()); f != nil {
		x.fail(*f)
	}
}

// documents answers one request about documents, or returns what is wrong with it.
//
//	GET /api/workspaces               those that the actor has a role in
//	GET, PATCH /api/workspaces/{id}   one
//	GET /api/workspaces/{id}/changes  who changed what, the last 100
//	GET /api/projects/{id}            whose workspace it is
func (g *Gateway) documents(w http.ResponseWriter, r *http.Request, t *tables, who actor) *failure {
	h := w.Header()
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Vary", "Authorization, X-Api-Key, Api-Key")
	h.Set("X-Content-Type-Options", "nosniff")
	wrong := unknownURL(r)
	kind, id, rest := split(strings.TrimPrefix(r.URL.EscapedPath(), "/api"))
	patches := kind == inWorkspace && rest == "" && id != ""
	if f := methods(r, patches); f != nil {
		return f
	}
	switch {
	case kind == inProject && rest == "":
		return g.project(w, r, t, who, id)
	case kind != inWorkspace:
	case id == "" && r.URL.Path == "/api/workspaces":
		return g.listDocuments(w, r, t, who)
	case who.roles(id) == "" || !declares(t.cfg, id):
		f := unknownPlace("workspace", id)
		return &f
	case patches && r.Method == http.MethodPatch:
		return g.patchDocument(w, r, who, id)
	case patches:
		return g.document(w, r, who, id)
	case rest == "/changes":
		list, err := g.workspaces.Changes(r.Context(), id)
		if err != nil {
			return g.unreadable(err)
		}
		return answerJSON(w, r, listView{"list", list})
	}
	return &wrong
}

// methods are GET and HEAD, and PATCH where a document can be changed.
func methods(r *http.Request, patches bool) *failure {
	allowed := []string{http.MethodGet, http.MethodHead}
	if patches {
		allowed = append(allowed, http.MethodPatch)
	}
	if slices.Contains(allowed, r.Method) {
		return nil
	}
	f := wrongMethod(r, allowed)
	return &f
}

// declares reports whether there is a workspace.
func declares(cfg *config.Config, id string) bool {
	return slices.ContainsFunc(cfg.Workspaces, func(w config.Workspace) bool { return w.ID == id })
}

// project tells whose workspace a project belongs to.
func (g *Gateway) project(w http.ResponseWriter, r *http.Request, t *tables, who actor, id string) *failure {
	home, known := t.projects[id]
	role := who.roles(home)
	if !known || role == "" {
		f := unknownPlace("project", id)
		return &f
	}
	return answerJSON(w, r, struct {
		ID        string `json:"id"`
		Object    string `json:"object"`
		Workspace string `json:"workspace"`
		Role      string `json:"role"`
	}{id, "project", home, role})
}

// listDocuments answers with the documents that who has a role in, in the order of
// the configuration.
func (g *Gateway) listDocuments(w http.ResponseWriter, r *http.Request, t *tables, who actor) *failure {
	var ids []string
	for _, declared := range t.cfg.Workspaces {
		if who.roles(declared.ID) != "" {
			ids = append(ids, declared.ID)
		}
	}
	list, err := g.workspaces.List(r.Context(), ids)
	if err != nil {
		return g.unreadable(err)
	}
	views := make([]workspaceView, len(list))
	for i, d := range list {
		views[i] = viewOf(d, who.roles(d.ID))
	}
	return answerJSON(w, r, listView{"list", views})
}

// document answers with one, or with 304 where the caller has it.
func (g *Gateway) document(w http.ResponseWriter, r *http.Request, who actor, id string) *failure {
	d, err := g.workspaces.Get(r.Context(), id)
	if err != nil {
		return g.unreadable(err)
	}
	if f := require(r, d.ETag()); f != nil {
		return f
	}
	w.Header().Set("ETag", d.ETag())
	if matches(r.Header.Values("If-None-Match"), d.ETag(), true) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return answerJSON(w, r, viewOf(d, who.roles(id)))
}

// patchDocument changes one, if who may, and if it is still the one that If-Match
// names.
func (g *Gateway) patchDocument(w http.ResponseWriter, r *http.Request, who actor, id string) *failure {
	if role := who.roles(id); role != config.RoleOwner && role != config.RoleManager {
		return &failure{status: http.StatusForbidden, kind: kindInvalid, code: "role_not_allowed",
			message: fmt.Sprintf("The role %s may read the settings of workspace %q, not change them.", role, id)}
	}
	patch, wrong := readPatch(r)
	if wrong != nil {
		return wrong
	}
	d, fields, err := g.workspaces.Patch(r.Context(), id, patch, who.by, func(d workspace.Document) bool { return require(r, d.ETag()) == nil })
	if errors.Is(err, workspace.ErrStale) {
		return require(r, "")
	}
	if err != nil {
		return g.unreadable(err)
	}
	if len(fields) > 0 {
		g.log.Info("gateway: a workspace was changed", "workspace", id, "by", who.by, "version", d.Version, "changes", fields, "request", w.Header().Get("X-Request-Id"))
	}
	w.Header().Set("ETag", d.ETag())
	return answerJSON(w, r, viewOf(d, who.roles(id)))
}

// readPatch reads the body of a PATCH: JSON, whether it calls itself a merge patch
// or not.
func readPatch(r *http.Request) (p workspace.Patch, wrong *failure) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Header.Get("Content-Type") != "" && kind != "application/json" && kind != "application/merge-patch+json" {
		return p, &failure{status: http.StatusUnsupportedMediaType, kind: kindInvalid, code: "unsupported_media_type",
			message: "Send the change as application/merge-patch+json."}
	}
	if r.Header.Get("Content-Encoding") != "" {
		return p, &encodedBody
	}
	data, wrong := readBody(r, maxPatch)
	if wrong != nil {
		return p, wrong
	}
	p, err := workspace.ParsePatch(data)
	if m := (*workspace.Mistake)(nil); errors.As(err, &m) {
		return p, &failure{status: http.StatusBadRequest, kind: kindInvalid, code: m.Code,
			message: strings.ToUpper(m.What[:1]) + m.What[1:] + "."}
	}
	return p, nil
}

// require checks If-Match (RFC 9110 §13.1.1): tag has to be one of its.
func require(r *http.Request, tag string) *failure {
	want := r.Header.Values("If-Match")
	if len(want) == 0 || matches(want, tag, false) {
		return nil
	}
	return &failure{status: http.StatusPreconditionFailed, kind: kindInvalid, code: "precondition_failed",
		message: "The settings have changed since they were read. Read them again, and change what is there now."}
}

// matches reports whether a list of entity tags has tag in it, or is a star. Weak ones
// count where weak says so.
func matches(lists []string, tag string, weak bool) bool {
	for one := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		one = strings.TrimSpace(one)
		if weak {
			one = strings.TrimPrefix(one, "W/")
		}
		if tag != "" && (one == tag || one == "*") {
			return true
		}
	}
	return false
}

// unreadable answers where documents cannot be read or written now.
func (g *Gateway) unreadable(err error) *failure {
	if errors.Is(err, workspace.ErrUnknown) { // undeclared a moment ago
		return &failure{status: http.StatusNotFound, kind: kindInvalid, code: "workspace_not_found", message: "There is no such workspace."}
	}
	g.log.Warn("gateway: the settings of workspaces cannot be reached", "error", err)
	return &failure{status: http.StatusServiceUnavailable, kind: kindServer, code: "workspaces_unavailable",
		message: "The settings of workspaces cannot be reached right now. Retry soon.", retry: retryUnavailable}
}

// answerJSON sends a document with status 200. The result is nil, so that it can end
// a handler.
func answerJSON(w http.ResponseWriter, r *http.Request, document any) *failure {
	body, err := json.Marshal(document)
	if err != nil {
		return &internalError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, string(body)+"\n") // who has left cannot be told
	}
	return nil
}

// adminDocuments answers requests about documents on the admin listener: of
// operators, who own every workspace, and of holders of API keys, who are there what
// they are everywhere.
func (g *Gateway) adminDocuments(w http.ResponseWriter, r *http.Request) {
	v, wrong := g.visitor(r)
	if wrong != nil {
		wrong.refuseVisitor(w, r)
		return
	}
	who := admin
	if !v.operator {
		who = v.key.holder()
	}
	if f := g.documents(w, r, g.tables.Load(), who); f != nil {
		f.write(w, r)
	}
}
