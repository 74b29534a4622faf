package redisstore_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestMeet: addresses stand for a minute since they were renewed last.
func TestMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		meet := func(self string, want ...string) {
			t.Helper()
			got, err := r.store.Meet(t.Context(), self)
			if slices.Sort(got); err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s meets %v, %v; want %v", self, got, err, want)
			}
		}
		meet("a:1", "a:1")
		meet("b:2", "a:1", "b:2")
		time.Sleep(40 * time.Second)
		meet("a:1", "a:1", "b:2")
		time.Sleep(30 * time.Second)
		meet("c:3", "a:1", "c:3")
		if err := r.store.Part(t.Context(), "a:1"); err != nil {
			t.Fatal(err)
		}
		meet("c:3", "c:3")
		time.Sleep(61 * time.Second)
		if r.Redis.Exists("hw:{hw-fleet}:addresses") {
			t.Error("nobody has renewed an address for a minute, and the key is still there")
		}
		if _, err := r.store.Meet(t.Context(), ""); err == nil {
			t.Error("no address: want an error")
		}
	})
}
