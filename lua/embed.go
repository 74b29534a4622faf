// Package lua holds the scripts that decide for the whole fleet, as text. Each
// file's header is its contract: every KEYS, ARGV and reply slot with its unit.
//
// # Theory
//
// A script is the unit of atomicity in Redis, and its TIME the only clock that
// all replicas share. So every decision is one script call over keys of one
// hash tag, arguments and replies are flat integers, and nothing a replica
// believes (its clock, its idea of a level) enters except what it states about
// itself: which slots it holds, and until when its caller waits.
//
// Keys are hw:{hw}:<kind>:<dimension>:<32 hex>, kind b for request buckets, t
// for token budgets, l for in-flight counters, p for the turns at a bucket and s
// for those at a counter (:t tags and virtual time, :c claims); hw:{hw}:epoch says since
// when Redis keeps them. The tag {hw} puts all of them into one cluster slot.
//
// Scripts keep to what Redis 7 and miniredis do alike: %d for every printed
// number, no cjson, bit, struct or cmsgpack, no error text looked at. They read
// all keys before they write the first, so that an error changes nothing.
package lua

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"
)

var (
	//go:embed prelude_plain.lua
	preludePlain string
	//go:embed prelude_slots.lua
	preludeSlots string
	//go:embed prelude_each.lua
	preludeEach string
	//go:embed prelude_spend.lua
	preludeSpend string
	//go:embed prelude_restate.lua
	preludeRestate string
	//go:embed prelude_flow.lua
	preludeFlow string
	//go:embed prelude_change.lua
	preludeChange string
	//go:embed prelude_bucket.lua
	preludeBucket string
	//go:embed prelude_store.lua
	preludeStore string
	//go:embed prelude_lease.lua
	preludeLease string
	//go:embed prelude_once.lua
	preludeOnce string
	//go:embed prelude_take.lua
	preludeTake string
	//go:embed prelude_tag.lua
	preludeTag string
	//go:embed prelude_pool.lua
	preludePool string
	//go:embed prelude_stock.lua
	preludeStock string
	//go:embed prelude_bid.lua
	preludeBid string
	//go:embed prelude_turn.lua
	preludeTurn string
	//go:embed prelude_serve.lua
	preludeServe string
	//go:embed prelude_told.lua
	preludeTold string
	//go:embed prelude_guard.lua
	preludeGuard string

	//go:embed admit.lua
	admitBody string
	//go:embed settle.lua
	settleBody string
	//go:embed lease.lua
	leaseBody string
	//go:embed inspect.lua
	inspectBody string
	//go:embed pool.lua
	poolBody string
	//go:embed epoch.lua
	epochBody string
)

// poolOthers is what only some calls of Pool need, made by those alone.
var poolOthers = lazy("others", preludeChange+preludeBucket+preludeStore+preludeLease+preludeBid,
	"bucket_read", "bucket_write", "bucket_until", "lease_read", "lease_write", "bid_check", "bid_take")

// Script is one script, complete as Redis gets it.
type Script struct {
	Name   string // short and stable: a metric label
	Source string // the shared preludes, then the script's own file
	SHA    string // hex SHA-1 of Source, as EVALSHA wants it
	// Fenced: its first argument is a Redis time in µs after which it must change
	// nothing. The store sets that; its callers give what follows.
	Fenced bool
}

// The scripts. Their values are fixed at start and must not be changed.
var (
	Admit   = first(preludePlain+preludeSlots+preludeEach+preludeSpend, join("admit", preludeOnce+preludeTake+admitBody))
	Settle  = fence(join("settle", preludeTag+settleBody))
	Lease   = first(preludeRestate, join("lease", leaseBody))
	Inspect = join("inspect", inspectBody)
	Pool    = fence(document("pool", preludeTag+poolOthers+preludePool+preludeStock+preludeTurn+preludeServe+preludeTold+poolBody))
	// Stock is Pool where that is about slots: not before the replica knows the epoch.
	Stock = fence(first(preludeGuard, Pool))
	Epoch = document("epoch", epochBody)
)

// Scripts lists every script.
var Scripts = []Script{Admit, Settle, Lease, Inspect, Pool, Stock, Epoch}

// join makes a script about limits, behind what all of those share.
func join(name, body string) Script {
	return document(name, preludeChange+preludeBucket+preludeStore+preludeLease+body)
}

// lazy makes a function that defines those of body when it is called, and returns
// the exported ones of them in a table: every call of a script makes anew what is
// defined outside.
func lazy(name, body string, exported ...string) string {
	var fields strings.Builder
	for _, f := range exported {
		fmt.Fprintf(&fields, "  %s = %s,\n", f, f)
	}
	return "local function " + name + "()\n" + body + "return {\n" + fields.String() + "}\nend\n"
}

// first puts in front of a script what may answer before the rest is set up.
func first(body string, s Script) Script { return script(s.Name, body+s.Source) }

// fence makes a script one that takes the store's not-after first.
func fence(s Script) Script {
	s.Fenced = true
	return s
}

// document makes a script about anything else, in front of which stands only the
// time. Package redisstore runs it by Eval, which says how it must behave.
func document(name, body string) Script {
	return script(name, preludeFlow+body)
}

func script(name, source string) Script {
	sum := sha1.Sum([]byte(source))
	return Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}
