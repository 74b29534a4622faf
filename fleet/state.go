package fleet

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"time"
)

// maxDigest bounds one digest in an encoded table, where a packet's limit does
// not apply.
const maxDigest = 64 << 10

// Encode returns the whole table, this replica's own digest included, for a
// partner that may have missed any part of it: per digest its age in milliseconds,
// its length and its binary form.
func (t *Table) Encode(now time.Time) []byte {
	var b []byte
	if t.own.Sequence > 0 {
		b = appendEntry(b, entry{t.own, now}, now)
	}
	for _, name := range slices.Sorted(maps.Keys(t.others)) {
		b = appendEntry(b, t.others[name], now)
	}
	return b
}

func appendEntry(b []byte, e entry, now time.Time) []byte {
	d, _ := e.digest.Encode(nil, maxDigest)
	b = binary.AppendUvarint(b, uint64(max(0, now.Sub(e.heard).Milliseconds())))
	b = binary.AppendUvarint(b, uint64(len(d)))
	return append(b, d...)
}

// MergeEncoded merges what Encode wrote at another replica, and returns how many
// of its digests were news. Entries before a malformed one count; those after it
// are lost.
func (t *Table) MergeEncoded(b []byte, now time.Time) (news int, err error) {
	r := reader{b: b}
	for range maxReplicas {
		if len(r.b) == 0 {
			return news, nil
		}
		age := time.Duration(r.uvarint(math.MaxInt32)) * time.Millisecond
		d, err := Decode(r.plain(int(r.uvarint(maxDigest))))
		switch {
		case r.err != nil:
			return news, r.err
		case err != nil:
			return news, err
		}
		if age <= Retention && t.Merge(d, now.Add(-age)) {
			news++
		}
	}
	r.fail("more replicas than a fleet may have")
	return news, r.err
}
