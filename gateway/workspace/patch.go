package workspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/headway-limiter/headway/gateway/config"
)

// Mistake is what is wrong with a patch. Code is for programs: invalid_json,
// unknown_field, read_only_field or invalid_field.
type Mistake struct {
	Code  string
	Field string // empty: the patch as a whole
	What  string // for people, without a full stop
}

// Error implements error.
func (m *Mistake) Error() string { return "workspace: " + m.What }

// readOnly are the fields of an answer that nobody sets.
var readOnly = []string{"id", "object", "role", "version", "updated_at", "updated_by"}

// Patch is a merge patch (RFC 7396) of a document: fields that are in it replace
// those of the document, null stands for what the field begins with.
type Patch struct{ set []func(*Document) }

// ParsePatch reads a patch. It is stricter than the RFC, so that a mistake does
// not pass for a change: fields are known and of their type, their names are in
// their case, and none comes twice. The error is a [*Mistake].
func ParsePatch(data []byte) (Patch, error) {
	var p Patch
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return p, notObject
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return p, notObject
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return p, notObject
		}
		if seen[name] {
			return p, &Mistake{"invalid_json", name, fmt.Sprintf("the field %s comes twice", quoted(name))}
		}
		seen[name] = true
		set, err := setter(name, value)
		if err != nil {
			return p, err
		}
		p.set = append(p.set, set)
	}
	if _, err := dec.Token(); err != nil {
		return p, notObject
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return p, notObject
	}
	return p, nil
}

var notObject = &Mistake{Code: "invalid_json", What: "the body is not one JSON object"}

// quoted bounds what an answer repeats of its request, and keeps it printable.
func quoted(name string) string {
	const most = 64
	if len(name) > most {
		name = name[:most] + "..."
	}
	return fmt.Sprintf("%q", name)
}

// setter makes one field of a patch.
func setter(name string, value json.RawMessage) (func(*Document), error) {
	switch name {
	case FieldName:
		return setName(value)
	case FieldQueueing:
		b, err := boolean(name, value)
		return func(d *Document) { d.Queueing = b }, err
	case FieldRetention:
		b, err := boolean(name, value)
		return func(d *Document) { d.Retention = b != nil && *b }, err
	case FieldPublished:
		b, err := boolean(name, value)
		return func(d *Document) { d.Published = b != nil && *b }, err
	}
	if slices.Contains(readOnly, name) {
		return nil, &Mistake{"read_only_field", name, fmt.Sprintf("the field %s cannot be set", quoted(name))}
	}
	return nil, &Mistake{"unknown_field", name, fmt.Sprintf("the field %s is unknown", quoted(name))}
}

// setName reads a name. Null stands for the id.
func setName(value json.RawMessage) (func(*Document), error) {
	var name *string
	if json.Unmarshal(value, &name) != nil || name != nil && !config.WorkspaceName(*name) {
		return nil, &Mistake{"invalid_field", FieldName, fmt.Sprintf("the field %q is not a text of 1 to %d characters", FieldName, config.MaxWorkspaceName)}
	}
	return func(d *Document) {
		if d.Name = d.ID; name != nil {
			d.Name = *name
		}
	}, nil
}

// boolean reads true, false or null, which is nil.
func boolean(name string, value json.RawMessage) (*bool, error) {
	var b *bool
	if json.Unmarshal(value, &b) != nil {
		return nil, &Mistake{"invalid_field", name, fmt.Sprintf("the field %q is not true or false", name)}
	}
	return b, nil
}

// apply returns the changed document and what is different in it.
func (p Patch) apply(d Document) (Document, []Field) {
	out := d
	for _, set := range p.set {
		set(&out)
	}
	return out, differences(d, out)
}
