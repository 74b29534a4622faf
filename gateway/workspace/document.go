package workspace

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
)

// Fields of a document that can be changed, as they are called in JSON.
const (
	FieldName      = "name"
	FieldQueueing  = "inference_queueing_enabled"
	FieldRetention = "zero_data_retention"
	FieldPublished = "published"
)

// Document is the settings of one workspace. It is a value: a changed one is
// another.
type Document struct {
	ID   string `json:"-"`
	Name string `json:"name"` // 1 to 128 characters
	// Queueing says whether requests wait for a busy agent; nil: never said, so
	// they do.
	Queueing  *bool `json:"inference_queueing_enabled"`
	Retention bool  `json:"zero_data_retention"` // nothing of a body is logged or kept
	Published bool  `json:"published"`           // the manifest is open
	// Version is 1 for a new document and grows by one with each change; 0: the
	// document is only in the configuration yet.
	Version int64  `json:"version"`
	By      string `json:"by"` // who changed it last: key:<id>, admin or configuration
	// At is when it was changed last, by the clock of Redis; zero in version 0.
	At time.Time `json:"-"`

	stored string // its text in Redis; empty: none
}

// Queues is the effective value of inference_queueing_enabled.
func (d Document) Queues() bool { return d.Queueing == nil || *d.Queueing }

// ETag names this content of the document, quotes included. It is a strong one.
func (d Document) ETag() string {
	sum := sha256.Sum256([]byte(d.stored))
	return fmt.Sprintf(`"%d-%x"`, d.Version, sum[:6])
}

// ByConfiguration is who has made what the configuration begins with.
const ByConfiguration = "configuration"

// Seed is what a document begins with, as the configuration says.
type Seed struct {
	ID, Name             string // Name is not empty
	Queueing             *bool  // nil: not said
	Retention, Published bool
}

// Seeds are the workspaces that a configuration declares.
func Seeds(cfg *config.Config) []Seed {
	said := func(b *bool) bool { return b != nil && *b }
	list := make([]Seed, len(cfg.Workspaces))
	for i, w := range cfg.Workspaces {
		list[i] = Seed{
			ID: w.ID, Name: cmp.Or(w.Name, w.ID), Queueing: w.Queueing,
			Retention: said(w.Retention), Published: said(w.Published),
		}
	}
	return list
}

// document is the seed as a document that is not stored yet.
func (s Seed) document() Document {
	return Document{ID: s.ID, Name: s.Name, Queueing: s.Queueing, Retention: s.Retention, Published: s.Published, By: ByConfiguration}
}

// decode reads the stored text of a document.
func decode(id, stored string) (Document, error) {
	at, text, err := stamped(stored)
	d := Document{ID: id, At: at, stored: stored}
	if err == nil {
		err = json.Unmarshal([]byte(text), &d)
	}
	if err != nil {
		return Document{}, fmt.Errorf("workspace: document %q in the store cannot be read: %w", id, err)
	}
	return d, nil
}

// encode is the text of a document without its time, which Redis adds.
func (d Document) encode() string { return marshal(d) }

// stamped splits what Redis stored into its time and the text that it was given.
func stamped(stored string) (time.Time, string, error) {
	ms, text, _ := strings.Cut(stored, " ")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}, "", fmt.Errorf("%q is no time in ms", ms)
	}
	return time.UnixMilli(n).UTC(), text, nil
}

// Change is one line of the audit list: who changed what, and when.
type Change struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Version int64     `json:"version"` // of the document since then
	Fields  []Field   `json:"changes"` // empty: the document was created, or put back
}

// Field is what happened to one field. From and To are JSON values; null of
// inference_queueing_enabled means that it was never said.
type Field struct {
	Name string `json:"field"`
	From any    `json:"from"`
	To   any    `json:"to"`
}

// differences lists what changed from a to b.
func differences(a, b Document) (list []Field) {
	add := func(name string, from, to any) {
		if from != to {
			list = append(list, Field{name, from, to})
		}
	}
	add(FieldName, a.Name, b.Name)
	add(FieldQueueing, optional(a.Queueing), optional(b.Queueing))
	add(FieldRetention, a.Retention, b.Retention)
	add(FieldPublished, a.Published, b.Published)
	return list
}

// optional is the value behind p as JSON has it.
func optional(p *bool) any {
	if p == nil {
		return nil
	}
	return *p
}

// marshal writes plain structs of text, numbers and booleans, which cannot fail.
func marshal(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}
