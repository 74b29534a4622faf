package redisstore

import (
	"github.com/headway-limiter/headway/limiter"
)

// Layout says which keys lie beside each other, that is in one slot of a Redis
// Cluster, where one script call can reach them all.
type Layout string

const (
	// LayoutSingle keeps every key in one slot: a request is one call, exact, and
	// one server carries everything.
	LayoutSingle Layout = "single"
	// LayoutTenant keeps the keys of one Home beside each other, and those without
	// a Home in one slot of their own: tenants spread over the servers, and a
	// request that needs both kinds is two calls (see parts.go).
	LayoutTenant Layout = "tenant"
)

// sharedTag is the hash tag of all keys without a home.
const sharedTag = "hw"

// hashTag is what Redis Cluster hashes of a key with that home.
func hashTag(home limiter.ID) string {
	if home == "" {
		return sharedTag
	}
	return string(home)
}

// home is where the layout keeps the keys of an id with that Home.
func (s *Store) home(id limiter.ID) limiter.ID {
	if s.opts.Layout == LayoutTenant {
		return id
	}
	return ""
}

// slotCount is how many hash slots a Redis Cluster has.
const slotCount = 16384

// hashSlot is the slot of a hash tag: its CRC-16 (XMODEM: polynomial 0x1021,
// nothing reflected, from 0) modulo 16384, as the cluster specification says.
func hashSlot(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^tag[i]]
	}
	return crc % slotCount
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
