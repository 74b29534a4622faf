package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
)

// serverFields are the settings that only a server has, by the modes that have
// them; nil: all but the embedded one.
var serverFields = map[string][]string{
	"address": {ModeStandalone}, "addresses": {ModeSentinel, ModeCluster}, "sentinel": {ModeSentinel},
	"username": nil, "password": nil, "database": nil, "tls": nil, "tls_files": nil, "tls_server_name": nil,
}

// has reports whether redis.<field> means something in the mode that is set.
func (r Redis) has(field string) bool {
	modes, some := serverFields[field]
	return !some || r.Mode != ModeEmbedded && (modes == nil || slices.Contains(modes, r.Mode))
}

// redis checks the store. Settings of another mode are of no use; whoever wrote
// them probably meant that mode.
func (k *checker) redis() {
	r := k.Redis
	k.positive("redis.timeout", r.Timeout)
	k.atLeast("redis.database", int64(r.Database), 0)
	for _, f := range fieldNames(fieldsOf(reflect.TypeFor[Redis]())) {
		if !r.has(f) && k.written("redis."+f) {
			k.otherMode(f)
		}
	}
	if r.Layout == LayoutTenant && r.Mode != ModeCluster {
		k.warn("redis.layout", "remove it, or set redis.mode: cluster", "makes two calls of each decision, and spreads them over one server")
	}
	switch r.Mode {
	case ModeEmbedded:
		return
	case ModeStandalone:
		k.hostPort("redis.address", r.Address, false)
	case ModeSentinel, ModeCluster:
		k.servers()
	}
	if r.Username != "" && r.Password == "" && !k.unread("redis.password") {
		k.wrong("redis.username", "set redis.password too", "a user name without a password does nothing")
	}
	k.tls()
}

// otherMode complains of a setting of the store that the mode does not have. A
// list of servers that nobody reads is an error, because the one that is used
// in its place is a default.
func (k *checker) otherMode(f string) {
	path, mode := "redis."+f, k.Redis.Mode
	switch {
	case mode == ModeEmbedded:
		fix := "set redis.mode: standalone, or remove it"
		if f == "addresses" || f == "sentinel" {
			fix = "set redis.mode: sentinel or cluster, or remove it"
		}
		k.warn(path, fix, "has no effect on the embedded store")
	case f == "addresses":
		k.wrong(path, "set redis.mode: sentinel or cluster, or write redis.address", "mode standalone has one server")
	case f == "sentinel":
		k.warn(path, "set redis.mode: sentinel, or remove it", "has no effect in mode %s", mode)
	default:
		k.warn(path, "write redis.addresses, or remove it", "has no effect in mode %s", mode)
	}
}

// servers checks what the modes with several servers need.
func (k *checker) servers() {
	r := k.Redis
	if len(r.Addresses) == 0 && !k.unread("redis.addresses") {
		k.wrong("redis.addresses", "write a list of host:port, such as [redis-1:6379, redis-2:6379]", "mode %s needs them, and there are none", r.Mode)
	}
	for i, addr := range r.Addresses {
		path := fmt.Sprintf("redis.addresses[%d]", i)
		if first := slices.Index(r.Addresses, addr); first < i {
			k.wrong(path, "remove one of them", "%q is already addresses[%d]", addr, first)
			continue
		}
		k.hostPort(path, addr, false)
	}
	if r.Mode == ModeCluster {
		if r.Database > 0 {
			k.wrong("redis.database", "remove it", "a cluster has database 0 only")
		}
		return
	}
	if r.Sentinel.Master == "" && !k.unread("redis.sentinel.master") {
		k.wrong("redis.sentinel.master", "write the name that sentinel.conf monitors, such as mymaster", "mode sentinel needs it")
	}
	if r.Sentinel.Username != "" && r.Sentinel.Password == "" && !k.unread("redis.sentinel.password") {
		k.wrong("redis.sentinel.username", "set redis.sentinel.password too", "a user name without a password does nothing")
	}
}

// tls checks the files. Files without TLS are an error: who wrote them does not
// expect passwords to travel in the open.
func (k *checker) tls() {
	r := k.Redis
	if !r.TLS && !k.unread("redis.tls") {
		if r.TLSFiles != (TLSFiles{}) {
			k.wrong("redis.tls_files", "set redis.tls: true", "the connection is not encrypted")
		}
		if r.TLSServerName != "" {
			k.wrong("redis.tls_server_name", "set redis.tls: true", "the connection is not encrypted")
		}
	}
	if f := r.TLSFiles; f.Cert != "" && f.Key == "" && !k.unread("redis.tls_files.key") {
		k.wrong("redis.tls_files.cert", "set redis.tls_files.key too", "a certificate is of no use without its private key")
	} else if f.Key != "" && f.Cert == "" && !k.unread("redis.tls_files.cert") {
		k.wrong("redis.tls_files.key", "set redis.tls_files.cert too", "a private key is of no use without its certificate")
	} else if r.TLS {
		k.tlsFiles()
	}
}

// tlsFiles checks that the files are there: a replica could not start without.
func (k *checker) tlsFiles() {
	f := k.Redis.TLSFiles
	for i, file := range [...]string{f.CA, f.Cert, f.Key} {
		if _, err := os.Stat(file); file != "" && errors.Is(err, os.ErrNotExist) {
			k.wrong("redis.tls_files."+[...]string{"ca", "cert", "key"}[i], "write the path of a PEM file, from where headway is started", "there is no file %q", file)
		}
	}
}

// homes checks that every user has one home where the store's keys lie by
// tenant: with two, a user would have each budget twice. That a request names a
// user whose own keys are of another team can be seen only when it comes: the
// gateway refuses it.
func (k *checker) homes() {
	if k.Redis.Layout != LayoutTenant {
		return
	}
	first, naming := map[string]int{}, -1
	for i, key := range k.Keys {
		at := fmt.Sprintf("keys[%d]", i)
		if j, seen := first[key.User]; key.User != "" && seen && k.Keys[j].TeamID() != key.TeamID() {
			k.wrong(at+".team", "give all keys of a user the same team, or set redis.layout: single",
				"user %q is of team %q in keys[%d]; under redis.layout tenant it would have two budgets", key.User, k.Keys[j].TeamID(), j)
		} else if !seen {
			first[key.User] = i
		}
		switch {
		case !key.MayNameUser:
		case naming < 0:
			naming = i
		case k.Keys[naming].TeamID() != key.TeamID():
			k.wrong(at+".may_name_user", "let keys of one team name users, or set redis.layout: single",
				"keys[%d] may too, for team %q; under redis.layout tenant a user that both name would have two budgets", naming, k.Keys[naming].TeamID())
		}
	}
}

// fleet checks the gossip. That replicas with a store each would enforce each
// limit once per replica is an error, because nothing would look wrong until
// the provider's bill.
func (k *checker) fleet() {
	f := k.Fleet
	if k.Redis.Mode == ModeEmbedded && len(f.Join) > 0 {
		k.wrong("fleet.join", "set redis.mode: standalone, sentinel or cluster, or remove fleet.join", "an embedded store is not shared, so replicas that join would each enforce the limits alone")
	}
	for i, addr := range f.Join {
		k.hostPort(fmt.Sprintf("fleet.join[%d]", i), addr, false)
	}
	for i, key := range f.Keys {
		raw, err := base64.StdEncoding.DecodeString(key.Reveal())
		if n := len(raw); err != nil || n != 16 && n != 24 && n != 32 {
			k.wrong(fmt.Sprintf("fleet.keys[%d]", i), "make one with: openssl rand -base64 32", "not base64 of 16, 24 or 32 bytes")
		}
	}
	if f.Bind != "" {
		open := k.hostPort("fleet.bind", f.Bind, true) && !Loopback(f.Bind) && len(f.Keys) == 0
		if open {
			k.warn("fleet.bind", "set fleet.keys", "gossip on %s is not encrypted, and anybody may join", f.Bind)
		}
		if f.Advertise != "" {
			k.hostPort("fleet.advertise", f.Advertise, false)
		}
		return
	}
	if k.unread("fleet.bind") {
		return
	}
	if len(f.Join) > 0 {
		k.wrong("fleet.join", "set fleet.bind", "there is nothing to join with: fleet.bind is empty")
	}
	if f.Advertise != "" || len(f.Keys) > 0 {
		k.warn("fleet", "set fleet.bind", "advertise and keys have no effect without fleet.bind")
	}
}
