package config

import (
	"reflect"
	"slices"
	"strings"
)

// fixed are the fields, or whole parts, that a running replica cannot change:
// what it listens on and is connected to, and what shapes state it shares with
// others. Everything else follows a change of the file.
var fixed = []string{
	"server.listen", "server.tls", "server.admin_listen", "server.admin_tls", "server.max_header", "server.timeouts.read_header", "server.timeouts.idle",
	"redis", "fleet", "rate_limit_service.listen", "rate_limit_service.tls", "batch.enabled", "batch.workers", "batch.lease",
	"rate_limiting.lease_ttl", "rate_limiting.inflight_scope",
	"rate_limiting.fair_queuing.tenant_dimension", "rate_limiting.fair_queuing.discipline",
	"rate_limiting.fair_queuing.fairness_scope",
}

// free are the parts of fixed ones that follow nevertheless.
var free = []string{"redis.on_outage"}

// Change returns what a replica that was started with c runs once its file says
// next: next, with the fields that need a restart as they were. Those of them
// that differ are named, with the line of next and what to do.
//
// The error is an [*Error]: the mistakes of what comes out, where next is right
// by itself but not with what had to stay.
func (c *Config) Change(next *Config) (effective *Config, restart []Problem, err error) {
	out := *next
	stay := func(path string) {
		restart = append(restart, Problem{
			Line: next.lines[path], Path: path, What: "has changed, and the old value stays in force",
			Fix: "restart this replica",
		})
	}
	keep(reflect.ValueOf(c).Elem(), reflect.ValueOf(&out).Elem(), "", stay)
	sortProblems(restart)
	if wrong := out.check(func(string) bool { return false }); len(wrong) > 0 {
		return nil, restart, &Error{Problems: wrong}
	}
	out.warnings = next.warnings
	return &out, restart, nil
}

// keep walks the tree and puts into next what must stay as in old. It stops at the
// first level that is not a struct, so that a list is one field.
func keep(old, next reflect.Value, path string, stay func(path string)) {
	stays := slices.ContainsFunc(fixed, func(f string) bool { return path == f || strings.HasPrefix(path, f+".") })
	if slices.Contains(free, path) {
		return
	}
	if old.Kind() != reflect.Struct {
		if stays && !same(old, next) {
			next.Set(old)
			stay(path)
		}
		return
	}
	for i := range old.NumField() {
		name, _, _ := strings.Cut(old.Type().Field(i).Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		keep(old.Field(i), next.Field(i), strings.TrimPrefix(path+"."+name, "."), stay)
	}
}

// same compares fields. An absent list is an empty one.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}
