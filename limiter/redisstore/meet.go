package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headway-limiter/headway/lua"
)

const (
	// meetTTL is how long an address stands without being renewed. Gossip meets at
	// least every 16 s, later when some addresses don't answer.
	meetTTL = time.Minute
	// meetMost bounds the addresses told at once. Whoever reaches one of a fleet
	// hears of all others there.
	meetMost = 64
)

// meetKeys has a slot of its own: in a cluster the addresses may be on another
// master than what admissions need.
var meetKeys = []string{"hw:{hw-fleet}:addresses"}

// Meet writes into Redis that this replica's gossip is reached at self, a
// host:port, for the next minute, and returns the addresses of all replicas that
// said so of theirs, self among them: at most 64, those first that did so last.
// Errors are those of [Store.Eval]; what stands is then known to nobody.
func (s *Store) Meet(ctx context.Context, self string) ([]string, error) {
	reply, err := s.meet(ctx, self, meetTTL)
	if err != nil {
		return nil, err
	}
	list := make([]string, len(reply))
	for i, v := range reply {
		addr, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("redisstore: meet: %v is no address", v)
		}
		list[i] = addr
	}
	return list, nil
}

// Part takes the address away, when a replica leaves. Without it, it lapses.
func (s *Store) Part(ctx context.Context, self string) error {
	_, err := s.meet(ctx, self, 0)
	return err
}

func (s *Store) meet(ctx context.Context, self string, ttl time.Duration) ([]any, error) {
	if self == "" {
		return nil, errors.New("redisstore: meet: no address")
	}
	return s.Eval(ctx, lua.FleetMeet, meetKeys, self, strconv.FormatInt(ttl.Milliseconds(), 10), strconv.Itoa(meetMost))
}
