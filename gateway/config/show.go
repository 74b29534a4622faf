package config

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// Show writes the effective configuration as YAML: defaults filled in, the
// environment expanded, secrets masked and key digests cut short. It is for
// reading; what is masked cannot be loaded again.
func (c *Config) Show() ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(nodeOf(reflect.ValueOf(*c))); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return out.Bytes(), nil
}

// nodeOf renders a value the way the reader would accept it. A nil pointer
// yields nil: the field is absent.
func nodeOf(v reflect.Value) *yaml.Node {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return nodeOf(v.Elem())
	case reflect.Struct:
		if short[v.Type()] && v.FieldByName("Skip").Len() == 0 {
			return scalarNode(v.Field(0))
		}
		return structNode(v)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, nodeOf(v.Index(i)))
		}
		return flowIfEmpty(n)
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range slices.Sorted(maps.Keys(v.Interface().(map[string]Rule))) {
			n.Content = append(n.Content, text(key), nodeOf(v.MapIndex(reflect.ValueOf(key))))
		}
		return flowIfEmpty(n)
	}
	return scalarNode(v)
}

// structNode renders the fields in the order of their declaration, and what is
// effective rather than what was written: a burst that defaults to its limit is
// shown as that.
func structNode(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(v.Type()) {
		value := v.FieldByIndex(f.index)
		switch k, isKey := v.Interface().(Key); {
		case isKey && f.name == "key":
			continue // never in an effective configuration: only its digest is
		case isKey && f.name == "digest":
			value = reflect.ValueOf(k.shortDigest())
		case isKey && f.name == "workspace":
			value = reflect.ValueOf(k.Home())
		case v.Type() == reflect.TypeFor[Rate]() && f.name == "burst" && value.IsZero():
			value = v.FieldByName("Limit")
		case v.Type() == reflect.TypeFor[Limit]() && f.name == "on_outage" && value.IsZero():
			continue
		case v.Type() == reflect.TypeFor[Redis]() && !v.Interface().(Redis).has(f.name):
			continue // it would read as if it had an effect
		case v.Type() == reflect.TypeFor[Route]() && value.IsZero() && (f.name == "upstream" || f.name == "upstreams"):
			continue // it has the other
		}
		if child := nodeOf(value); child != nil {
			n.Content = append(n.Content, text(f.name), child)
		}
	}
	return flowIfEmpty(n)
}

// shortDigest is enough of a digest to recognise it by, and too little to
// test guesses against.
func (k Key) shortDigest() string {
	sum, err := k.Sum()
	if err != nil {
		return Masked
	}
	return fmt.Sprintf("%s%x…", digestPrefix, sum[:4])
}

// scalarNode renders one value with its unit. Floats use as few digits as read
// back to the same number.
func scalarNode(v reflect.Value) *yaml.Node {
	switch v.Type() {
	case durationType:
		return text(time.Duration(v.Int()).String())
	case sizeType, secretType:
		return text(v.Interface().(fmt.Stringer).String())
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(v.Interface())}
	if v.Kind() == reflect.String {
		return text(v.String())
	}
	if v.Kind() == reflect.Float64 {
		n.Value = strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	return n
}

// text makes a string node, quoted where a bare word would read as something
// else.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// flowIfEmpty writes [] and {}, which block style has no way to say.
func flowIfEmpty(n *yaml.Node) *yaml.Node {
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	return n
}
