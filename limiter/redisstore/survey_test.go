package redisstore

import (
	"reflect"
	"testing"
)

// As a cluster of Redis 7 tells it, with a slot on the move, a node without an
// address, one with a name, one that speaks IPv6 and one that nobody has met.
const nodesText = `07c37df 127.0.0.1:30004@31004,redis-4.example slave e7d1eec 0 1426238317239 4 connected
67ed2db 10.0.0.2:30002@31002,,shard-id=x master - 0 1426238316232 2 connected 5461-10922
292f8b3 2001:db8::3:30003@31003 master,fail - 0 1426238318243 3 connected 10923-16383
6ec2392 :0@0 master,noaddr - 1426238317741 1426238316232 5 disconnected
824fe11 127.0.0.1:30005@31005 handshake - 0 0 0 connected
e7d1eec :30001@31001 myself,master - 0 0 1 connected 0-5459 5460 [5459->-67ed2db]
`

func TestParseNodes(t *testing.T) {
	got := parseNodes(nodesText, "seed:1", true)
	want := []member{
		{addr: "redis-4.example:30004", epoch: 4},
		{addr: "10.0.0.2:30002", master: true, epoch: 2, ranges: [][2]int{{5461, 10922}}},
		{addr: "[2001:db8::3]:30003", master: true, epoch: 3, ranges: [][2]int{{10923, 16383}}},
		{addr: "seed:30001", master: true, epoch: 1, ranges: [][2]int{{0, 5459}, {5460, 5460}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := parseNodes(nodesText, "seed:1", false)[0].addr; got != "127.0.0.1:30004" {
		t.Errorf("by address: got %s", got)
	}
	for _, text := range []string{"", "\n", "a b c d e f g", "x :1 master - 0 0 1 connected 1-", "x y@z master - 0 0 1 connected"} {
		for _, m := range parseNodes(text, "seed:1", true) {
			if len(m.ranges) > 0 {
				t.Errorf("%q: got %+v", text, m)
			}
		}
	}
}

// TestHashSlot: the values of CLUSTER KEYSLOT.
func TestHashSlot(t *testing.T) {
	for tag, want := range map[string]uint16{"": 0, "123456789": 12739, "hw": 3315, "foo": 12182, "user1000": 3443} {
		if got := hashSlot(tag); got != want {
			t.Errorf("%q: got %d, want %d", tag, got, want)
		}
	}
}

// TestProbeHomes: every server that keeps a slot, however few, is probed with a
// key of its own.
func TestProbeHomes(t *testing.T) {
	nodes := []*client{{addr: "a"}, {addr: "b"}, {addr: "c"}, {addr: "d"}}
	owners := make([]*client, slotCount)
	for i := range owners {
		owners[i] = nodes[i%2]
	}
	owners[9999] = nodes[2]
	table := newTable(nodes, owners)
	for i, n := range nodes[:3] {
		if !table.keeps[i] || table.of(table.homes[i]) != n {
			t.Errorf("%s: keeps %v, probed with %q", n.addr, table.keeps[i], table.homes[i])
		}
	}
	if table.keeps[3] {
		t.Error("d keeps nothing")
	}
	if table.homes[1] != "" { // slot 3315
		t.Errorf("the server of shared keys is probed with %q, want the presence", table.homes[1])
	}
}
