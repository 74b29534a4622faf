package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// maxFile bounds a configuration file, in bytes.
	maxFile = 4 << 20
	// maxNodes bounds the YAML values visited, aliases counted each time, so
	// that nested aliases cannot blow up.
	maxNodes = 200_000
)

// Load reads and checks the file at path. The error is an [*Error] with every
// mistake, or that of reading the file.
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(data) > maxFile {
		return nil, &Error{File: path, Problems: []Problem{{What: fmt.Sprintf("the file is larger than %v", Size(maxFile))}}}
	}
	c, err := Parse(data, os.LookupEnv)
	if wrong := (*Error)(nil); errors.As(err, &wrong) {
		wrong.File = path
	}
	return c, err
}

// Parse reads and checks a configuration. References to the environment are
// looked up with env, which may be nil for an empty environment. The error is
// an [*Error] with every mistake in the text.
func Parse(data []byte, env func(string) (string, bool)) (*Config, error) {
	if env == nil {
		env = func(string) (string, bool) { return "", false }
	}
	c := Default()
	d := &decoder{env: env, lines: map[string]int{}}
	root, ok := d.document(data)
	if !ok {
		return nil, &Error{Problems: d.problems}
	}
	if root != nil {
		d.value(root, reflect.ValueOf(c).Elem(), "")
	}
	c.lines = d.lines
	problems := d.problems
	for _, p := range c.check(d.failed) {
		if !d.failed(p.Path) {
			problems = append(problems, p)
		}
	}
	if len(problems) > 0 {
		sortProblems(problems)
		return nil, &Error{Problems: problems}
	}
	for i := range c.Keys {
		if k := &c.Keys[i]; k.Key != "" {
			k.Digest, k.Key = Digest(k.Key.Reveal()), ""
		}
	}
	return c, nil
}

// decoder fills structs from YAML nodes and collects every mistake on the way.
type decoder struct {
	env      func(string) (string, bool)
	lines    map[string]int
	problems []Problem
	nodes    int
}

// wrong records a mistake at a node; see checker.wrong for the texts.
func (d *decoder) wrong(n *yaml.Node, path, fix, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: n.Line, Path: path, What: fmt.Sprintf(format, args...), Fix: fix})
}

// failed reports whether path, or something that holds it, could not be read:
// what its meaning is then needs no second complaint.
func (d *decoder) failed(path string) bool {
	return slices.ContainsFunc(d.problems, func(p Problem) bool {
		return p.Path != "" && (p.Path == path || strings.HasPrefix(path, p.Path+".") || strings.HasPrefix(path, p.Path+"["))
	})
}

// document parses the text to the node of its one document, nil if it is
// empty; false if it is not YAML.
func (d *decoder) document(data []byte) (*yaml.Node, bool) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, true
	} else if err != nil {
		d.problems = append(d.problems, notYAML(err, data))
		return nil, false
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		d.wrong(&yaml.Node{Line: more.Line}, "", "keep one document and remove the line ---", "the file holds more than one YAML document")
	}
	if len(doc.Content) == 0 {
		return nil, true
	}
	return doc.Content[0], true
}

// value fills v from n: structs, maps and lists by going into them, anything
// else from a scalar. What does not fit is recorded, and v keeps its default.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.wrong(n, path, "use fewer aliases", "the file holds more than %d values", maxNodes)
		}
		return
	}
	optional := v.Kind() == reflect.Pointer
	if optional {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	container := v.Kind() == reflect.Struct || v.Kind() == reflect.Slice || v.Kind() == reflect.Map
	switch {
	case isNull(n) && container && !optional:
		// A section whose fields are all commented out. Where the mere presence
		// of a section means something, it has to be written as {}.
	case v.Kind() == reflect.Struct && n.Kind == yaml.MappingNode:
		d.mapping(n, v, path)
	case short[v.Type()] && n.Kind == yaml.ScalarNode && !isNull(n):
		d.scalar(n, v.Field(0), path)
	case v.Kind() == reflect.Map && n.Kind == yaml.MappingNode:
		d.entries(n, v, path)
	case v.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		d.list(n, v, path)
	case !container && n.Kind == yaml.ScalarNode:
		d.scalar(n, v, path)
	case isNull(n):
		d.empty(n, v.Type(), path)
	default:
		d.wrong(n, path, "write "+wanted(v.Type()), "%s stands here", map[yaml.Kind]string{
			yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a single value"}[n.Kind])
	}
}

// isNull reports whether nothing is written where a value belongs.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// empty records a field without a value. Guessing its zero would turn a line
// that lost its end into a limit of nothing, or into no limit.
func (d *decoder) empty(n *yaml.Node, t reflect.Type, path string) {
	d.wrong(n, path, "write "+wanted(t)+", or remove the field", "the field has no value")
}

// pairs calls f for each key of a mapping that is a plain, unique name. The
// YAML parser accepts a name twice and leaves it to the reader which one holds;
// merge keys hide where a value comes from. Both are mistakes here.
func (d *decoder) pairs(n *yaml.Node, path string, f func(key, value *yaml.Node, path string)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		first, twice := seen[key.Value]
		switch {
		case key.Tag == "!!merge":
			d.wrong(key, at, "write the fields out, or use an alias for the whole value", "merge keys are not supported")
		case key.Kind != yaml.ScalarNode:
			d.wrong(key, path, "", "a field name has to be plain text")
		case twice:
			d.wrong(key, at, "remove one of them", "the field is already set on line %d", first)
		default:
			seen[key.Value] = key.Line
			d.lines[at] = key.Line
			f(key, value, at)
		}
	}
}

// mapping fills a struct. Names are looked for among its fields only: what is
// known nowhere here is a mistake, with the nearest name as a suggestion.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	d.pairs(n, path, func(key, value *yaml.Node, at string) {
		for _, f := range fields {
			if f.name == key.Value {
				d.value(value, v.FieldByIndex(f.index), at)
				return
			}
		}
		d.wrong(key, at, didYouMean(key.Value, fieldNames(fields)), "unknown field %q", key.Value)
	})
}

// entries fills a map from text to structs, whose names are identities.
func (d *decoder) entries(n *yaml.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, path, func(key, value *yaml.Node, at string) {
		if strings.Contains(key.Value, "${") {
			d.wrong(key, at, "write the name out", "environment references are expanded in values only, not in names")
			return
		}
		e := reflect.New(v.Type().Elem()).Elem()
		if isNull(value) {
			d.empty(value, e.Type(), at)
			return
		}
		d.value(value, e, at)
		v.SetMapIndex(reflect.ValueOf(key.Value), e)
	})
}

// list fills a slice. Elements start from their defaults.
func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		e := v.Index(i)
		switch e.Type() {
		case reflect.TypeFor[Upstream]():
			e.Set(reflect.ValueOf(DefaultUpstream()))
		case reflect.TypeFor[MappedEntry]():
			e.Set(reflect.ValueOf(defaultMappedEntry()))
		case reflect.TypeFor[Turn]():
			e.Set(reflect.ValueOf(defaultTurn()))
		case reflect.TypeFor[Step]():
			e.Set(reflect.ValueOf(defaultStep()))
		case reflect.TypeFor[Tool]():
			e.Set(reflect.ValueOf(defaultTool()))
		}
		d.value(item, e, at)
	}
}

// scalar fills a single value. Messages quote the text as it stands in the
// file, never what the environment put there, and never a secret.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	if isNull(n) {
		d.empty(n, v.Type(), path)
		return
	}
	text, err := expand(n.Value, d.env)
	if err != nil {
		d.wrong(n, path, fixReference(err), "%v", err)
		return
	}
	if text == "" && path == "server.admin_token" && required(n.Value) {
		d.wrong(n, path, "give the variable a value, or write ${NAME:-} for no token", "%s is set and empty, and no token lets everybody in", n.Value)
		return
	}
	if err := parseInto(v, text); err != nil {
		shown := strconv.Quote(n.Value)
		if text != n.Value {
			shown = n.Value + " (from the environment)"
		}
		d.wrong(n, path, "write "+wanted(v.Type()), "%s is not %s", shown, brief(v.Type()))
	}
}

// parseInto reads text as v's type. It is stricter than YAML: yes and on are
// no booleans, 1_000 and 1e3 no whole numbers, a bare number no duration.
func parseInto(v reflect.Value, text string) error {
	switch v.Type() {
	case durationType:
		t, err := parseDuration(text)
		v.SetInt(int64(t))
		return err
	case sizeType:
		s, err := ParseSize(text)
		v.SetInt(int64(s))
		return err
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b := text == "true"
		if !b && text != "false" {
			return strconv.ErrSyntax
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(strings.TrimPrefix(text, "."), 64) // YAML writes .nan and .inf
		if strings.HasPrefix(text, ".") && !math.IsNaN(f) && !math.IsInf(f, 0) {
			f, err = strconv.ParseFloat(text, 64)
		}
		if err != nil {
			return err
		}
		v.SetFloat(f)
	}
	return nil
}

// parseDuration reads a duration with units, days (1d) included. A bare 0 is
// refused like any other bare number.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if n > math.MaxInt64/int64(24*time.Hour) || n < 0 {
			return 0, strconv.ErrRange
		}
		return time.Duration(n) * 24 * time.Hour, err
	}
	if text == "" || !strings.ContainsAny(text[len(text)-1:], "smh") {
		return 0, errors.New("no unit")
	}
	return time.ParseDuration(text)
}

// wanted describes what a field of type t takes, with an example.
func wanted(t reflect.Type) string {
	switch t {
	case durationType:
		return "a duration with a unit, such as 500ms, 10s or 1m"
	case sizeType:
		return "a size with a unit, such as 64KiB or 10MiB"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "a mapping"
	case reflect.Struct:
		if short[t] {
			return "text, or a mapping with " + strings.Join(fieldNames(fieldsOf(t)), ", ")
		}
		return "a mapping with " + strings.Join(fieldNames(fieldsOf(t)), ", ")
	}
	return "text"
}

// brief is wanted without the examples, for the middle of a sentence.
func brief(t reflect.Type) string {
	text, _, _ := strings.Cut(wanted(t), ",")
	return text
}

// field is one field of a struct as YAML sees it: the one description of the
// tree that reading, checking, showing and the schema all go by.
type field struct {
	name  string
	index []int
	tag   reflect.StructTag
	typ   reflect.Type
}

// fieldsOf lists the YAML fields of a struct in order, inlined ones in place.
func fieldsOf(t reflect.Type) []field {
	var fields []field
	for f := range t.Fields() {
		switch tag := f.Tag.Get("yaml"); tag {
		case "":
		case ",inline":
			for _, in := range fieldsOf(f.Type) {
				in.index = append(slices.Clone(f.Index), in.index...)
				fields = append(fields, in)
			}
		default:
			fields = append(fields, field{name: tag, index: f.Index, tag: f.Tag, typ: f.Type})
		}
	}
	return fields
}

// fieldNames lists the names in the order of the structs, which is the order
// people read them in.
func fieldNames(fields []field) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// join extends a path by a name; names that would read as more than one step
// are quoted.
func join(path, name string) string {
	if strings.ContainsAny(name, ".[]: ") || name == "" {
		name = strconv.Quote(name)
		return path + "[" + name + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
