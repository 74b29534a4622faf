package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Schema returns the JSON Schema (draft 2020-12) of the configuration, for
// editors. It is made from the structs: descriptions are their help tags with
// the default at the end.
//
// The schema is as strict about names as the reader is, but knows less about
// meaning: what it accepts may still be refused by `headway config validate`.
func Schema() ([]byte, error) {
	root := schemaOf(reflect.ValueOf(*Default()), field{}, true)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Headway configuration"
	out, err := json.MarshalIndent(root, "", "  ")
	return append(out, '\n'), err
}

// referencePattern matches a value that the environment supplies.
const referencePattern = `\$\{[A-Za-z_]`

// schemaOf describes one value. Its current content is the default, if it has
// one: what stands inside an optional entry has none.
func schemaOf(v reflect.Value, f field, defaults bool) map[string]any {
	s := map[string]any{}
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		t, defaults = t.Elem(), false
		v = reflect.Zero(t)
	}
	switch t.Kind() {
	case reflect.Struct:
		s = objectSchema(v, defaults)
		if short[t] {
			s = map[string]any{"anyOf": []any{map[string]any{"type": "string"}, s}}
		}
	case reflect.Map:
		s["type"] = []string{"object", "null"}
		s["additionalProperties"] = schemaOf(reflect.Zero(t.Elem()), field{}, false)
	case reflect.Slice:
		item, upstream := reflect.Zero(t.Elem()), t.Elem() == reflect.TypeFor[Upstream]()
		if upstream {
			item = reflect.ValueOf(DefaultUpstream())
		}
		s["type"] = []string{"array", "null"}
		s["items"] = schemaOf(item, field{tag: itemTag(f.tag)}, upstream)
	default:
		s = scalarSchema(t, f)
	}
	if help := f.tag.Get("help"); help != "" {
		s["description"] = help
		if defaults {
			s["description"] = help + defaultText(v)
		}
	}
	return s
}

// itemTag is the tag of a list's items: they are of its enum, and have no help
// of their own.
func itemTag(list reflect.StructTag) reflect.StructTag {
	if choices := list.Get("enum"); choices != "" {
		return reflect.StructTag(fmt.Sprintf("enum:%q", choices))
	}
	return ""
}

// objectSchema describes a struct: every field by name, and nothing else. Null
// is allowed as by the reader, for sections with everything commented out.
func objectSchema(v reflect.Value, defaults bool) map[string]any {
	properties := map[string]any{}
	for _, f := range fieldsOf(v.Type()) {
		properties[f.name] = schemaOf(v.FieldByIndex(f.index), f, defaults)
	}
	s := map[string]any{
		"type":                 []string{"object", "null"},
		"properties":           properties,
		"additionalProperties": false,
	}
	required := map[reflect.Type][]string{
		reflect.TypeFor[Rate]():     {"limit", "per"},
		reflect.TypeFor[Weight]():   {"identity", "weight"},
		reflect.TypeFor[Key]():      {"id"},
		reflect.TypeFor[Upstream](): {"name", "url"},
		reflect.TypeFor[Route]():    {"path"},

		reflect.TypeFor[Workspace]():  {"id"},
		reflect.TypeFor[Project]():    {"id", "workspace"},
		reflect.TypeFor[Membership](): {"id", "role"},

		reflect.TypeFor[ExemptAddr](): {"cidr"},
		reflect.TypeFor[ExemptKey]():  {"id"},
	}[v.Type()]
	if required != nil {
		s["required"] = required
	}
	for t, either := range map[reflect.Type][2]string{
		reflect.TypeFor[Key](): {"key", "digest"}, reflect.TypeFor[Route](): {"upstream", "upstreams"},
	} {
		if v.Type() == t {
			s["oneOf"] = []any{map[string]any{"required": either[:1]}, map[string]any{"required": either[1:]}}
		}
	}
	return s
}

// scalarSchema describes a single value, or a reference in its place, whose
// content an editor cannot know.
func scalarSchema(t reflect.Type, f field) map[string]any {
	fromEnv := map[string]any{"type": "string", "pattern": referencePattern}
	or := func(s map[string]any) map[string]any { return map[string]any{"anyOf": []any{s, fromEnv}} }
	switch {
	case t == durationType:
		return or(map[string]any{"type": "string", "pattern": `^([0-9]+d|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`})
	case t == sizeType:
		return or(map[string]any{"type": "string", "pattern": `^[0-9]+ ?(B|kB|MB|GB|KiB|MiB|GiB)$`})
	case f.tag.Get("enum") != "":
		return or(map[string]any{"enum": strings.Split(f.tag.Get("enum"), "|")})
	}
	switch t.Kind() {
	case reflect.Bool:
		return or(map[string]any{"type": "boolean"})
	case reflect.Int, reflect.Int64:
		return or(map[string]any{"type": "integer", "minimum": 0})
	case reflect.Float64:
		if f.tag.Get("zero") != "" {
			return or(map[string]any{"type": "number", "minimum": 0})
		}
		return or(map[string]any{"type": "number", "exclusiveMinimum": 0})
	}
	// Names may look like numbers: the reader takes their text.
	return map[string]any{"type": []string{"string", "number", "boolean"}}
}

// defaultText tells the default of a field that has one. It stands in the
// description, because editors show that and not the schema's default.
func defaultText(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
		return ""
	case reflect.String:
		if v.Len() == 0 {
			return ""
		}
	}
	return fmt.Sprintf(" (default %s)", scalarNode(v).Value)
}
