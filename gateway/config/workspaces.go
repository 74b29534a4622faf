package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Workspace declares a workspace: that it exists, and what its document says
// until somebody changes it. From then on the document in the store holds, and
// what stands here is not looked at again while the store has it.
type Workspace struct {
	ID        string `yaml:"id" help:"stable name in paths: at most 64 letters, digits, dots, dashes and underscores"`
	Name      string `yaml:"name" help:"name for people; empty: the id"`
	Queueing  *bool  `yaml:"inference_queueing_enabled" help:"true: requests wait for a busy agent; false: they are refused at once; absent: true"`
	Retention *bool  `yaml:"zero_data_retention" help:"true: nothing of a request's body is logged or kept, so batch files are refused; absent: false"`
	Published *bool  `yaml:"published" help:"true: the manifest is open to everyone; absent: false"`
}

// Project is another name for the workspace that its requests belong to.
type Project struct {
	ID        string `yaml:"id" help:"stable name in paths, of the same letters as that of a workspace"`
	Workspace string `yaml:"workspace" help:"id of the workspace that its requests belong to"`
}

// Roles of keys in workspaces. Owner and manager may change the document.
const (
	RoleOwner   = "owner"
	RoleManager = "manager"
	RoleMember  = "member"
)

// Membership is what a key may do in one workspace.
type Membership struct {
	ID   string `yaml:"id" help:"id of the workspace"`
	Role string `yaml:"role" enum:"owner|manager|member" help:"owner and manager may change the workspace's settings, a member may read them"`
}

// Home is the workspace that requests of k to plain paths belong to: the one it
// names, or the only one it has a role in; empty: none.
func (k Key) Home() string {
	if k.Workspace == "" && len(k.Workspaces) == 1 {
		return k.Workspaces[0].ID
	}
	return k.Workspace
}

// Bounds of names, in bytes and characters.
const (
	maxPlaceID       = 64
	MaxWorkspaceName = 128
)

// PlaceID reports whether text may name a workspace or project. Such a name
// reads the same however a path is escaped, and is no dot segment.
func PlaceID(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return text != "" && len(text) <= maxPlaceID && strings.Trim(text, letters+"._-") == "" && text[0] != '.'
}

// WorkspaceName reports whether text is a name that can be shown: 1 to
// MaxWorkspaceName characters, some of them visible, and none that controls how others
// are shown or stands for one that could not be read.
func WorkspaceName(text string) bool {
	seen := func(r rune) bool { return unicode.IsGraphic(r) && !unicode.IsSpace(r) }
	return utf8.RuneCountInString(text) <= MaxWorkspaceName && utf8.ValidString(text) &&
		strings.ContainsFunc(text, seen) && !strings.ContainsFunc(text, disturbs)
}

// disturbs reports whether r has no place in a name. The two joiners of U+200C and
// U+200D are format characters, too, but some scripts need them.
func disturbs(r rune) bool {
	return r == utf8.RuneError || r != '\u200c' && r != '\u200d' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// workspaces checks what is declared, who has a role there, and that no route
// claims paths that belong to workspaces.
func (k *checker) workspaces() {
	all := map[string]int{}
	for i, w := range k.Workspaces {
		at := fmt.Sprintf("workspaces[%d]", i)
		k.placeID(at, w.ID, i, all)
		if w.Name != "" && !WorkspaceName(w.Name) {
			k.wrong(at+".name", fmt.Sprintf("write 1 to %d characters", MaxWorkspaceName), "%q cannot be shown as a name", w.Name)
		}
	}
	projects := map[string]int{}
	for i, p := range k.Projects {
		at := fmt.Sprintf("projects[%d]", i)
		k.placeID(at, p.ID, i, projects)
		k.workspaceNamed(at+".workspace", p.Workspace)
	}
	used := map[string]bool{}
	for i, key := range k.Keys {
		k.memberships(fmt.Sprintf("keys[%d]", i), key, used)
	}
	for i, w := range k.Workspaces {
		if w.ID != "" && !used[w.ID] {
			k.warn(fmt.Sprintf("workspaces[%d]", i), "give a key a role in it: workspaces: [{id: "+w.ID+", role: owner}]", "no key has a role in %q", w.ID)
		}
	}
	k.reserved()
}

// placeID checks the name of a workspace or project.
func (k *checker) placeID(at, id string, i int, seen map[string]int) {
	section, _, _ := strings.Cut(at, "[")
	switch first, twice := seen[id]; {
	case id == "":
		k.wrong(at+".id", "give it a name for paths", "the id is missing")
		return
	case !PlaceID(id):
		k.wrong(at+".id", fmt.Sprintf("write at most %d letters, digits, dots, dashes and underscores, no dot first", maxPlaceID), "%q cannot stand in a path", id)
	case twice:
		k.wrong(at+".id", "give each its own id", "%q is also the id of %s[%d]", id, section, first)
	}
	seen[id] = i
}

// workspaceNamed complains of a workspace that is not declared.
func (k *checker) workspaceNamed(path, id string) {
	var names []string
	for _, w := range k.Workspaces {
		names = append(names, w.ID)
	}
	if slices.Contains(names, id) || k.unread(path) {
		return
	}
	fix := "add it to workspaces"
	if len(names) > 0 {
		fix = didYouMean(id, names)
	}
	k.wrong(path, fix, "there is no workspace %q", id)
}

// memberships checks the roles of one key, and marks the workspaces as used.
func (k *checker) memberships(at string, key Key, used map[string]bool) {
	seen := map[string]int{}
	for j, m := range key.Workspaces {
		path := fmt.Sprintf("%s.workspaces[%d]", at, j)
		if first, twice := seen[m.ID]; twice {
			k.wrong(path, "remove one of them", "%q is already workspaces[%d]", m.ID, first)
			continue
		}
		seen[m.ID], used[m.ID] = j, true
		k.workspaceNamed(path+".id", m.ID)
	}
	if _, member := seen[key.Workspace]; key.Workspace != "" && !member && !k.unread(at+".workspaces") {
		k.wrong(at+".workspace", "add it to the key's workspaces, with a role", "the key has no role in %q", key.Workspace)
	}
}

// reserved finds routes that could never be reached, because their paths
// belong to workspaces, or to agents.
func (k *checker) reserved() {
	owners := map[string]string{}
	if len(k.Workspaces) > 0 {
		for _, p := range []string{"/workspaces/", "/projects/", "/api/workspaces", "/api/projects/"} {
			owners[p] = "workspaces"
		}
	}
	if slices.ContainsFunc(k.Upstreams, Upstream.IsAgent) {
		owners["/direct/"] = "agents"
	}
	for i, r := range k.Routes {
		for p, owner := range owners {
			if strings.HasPrefix(r.Path, p) {
				k.wrong(fmt.Sprintf("routes[%d].path", i), "choose another path", "paths that begin with %s belong to %s", p, owner)
			}
		}
	}
}
