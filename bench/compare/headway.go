package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/lua"
)

// plenty is a rate that no cell exhausts: 10^6 tokens a second and at once.
const plenty = 1_000_000

// quiet keeps the log of stores out of the tables.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// patience is a budget that a busy machine keeps. A longer one costs nothing: no
// decision takes longer for it.
const patience = 10 * time.Second

// dimensions are those of the four limits, in the order in which they are asked.
var dimensions = []limiter.Dimension{limiter.APIKey, limiter.User, limiter.Team, limiter.Model}

// names of the four limits that a key stands for: its own, its user's, that of a
// team of ten and that of one of ten models.
func names(key int) [4]string {
	k := strconv.Itoa(key)
	return [4]string{"key" + k, "user" + k, "team" + strconv.Itoa(key/10), "model" + strconv.Itoa(key%10)}
}

// identities of every key, hashed once: a gateway does it once per request, and
// rivals do not at all.
func identities() [][4]limiter.ID {
	list := make([][4]limiter.ID, keyCount)
	for key := range list {
		for i, name := range names(key) {
			list[key][i] = limiter.Hash(dimensions[i], name)
		}
	}
	return list
}

// takes are what a request of each key takes.
func takes(dims int, lease bool, rate limiter.Rate) []limiter.Take {
	ids, list := identities(), make([]limiter.Take, keyCount)
	for key := range list {
		for i, d := range dimensions[:dims] {
			list[key].Charges = append(list[key].Charges, limiter.Charge{
				Bucket: limiter.BucketID{Dimension: d, ID: ids[key][i]}, Rate: rate, Cost: 1,
			})
		}
		if lease {
			list[key].Slots = []limiter.Slot{{Slot: limiter.SlotID{Dimension: limiter.User, ID: ids[key][1]}, Cap: 1000}}
		}
	}
	return list
}

// perSecond is a rate with a burst of one second.
func perSecond(n int64) limiter.Rate { return limiter.Rate{Limit: n, Per: time.Second, Burst: n} }

// scripts are what Headway's store sends.
var scripts = []string{"evalsha"}

// openBare calls the script as it is, with one decision a call.
func openBare(dims int) opener {
	return func(ctx context.Context, addr string) (*target, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{addr}, DisableRetry: true, DisableCache: true, ForceSingleClient: true,
		})
		if err != nil {
			return nil, err
		}
		if err := client.Do(ctx, client.B().ScriptLoad().Script(lua.Admit.Source).Build()).Error(); err != nil {
			return nil, err
		}
		// Keys and arguments are spelled in advance, for the floor is what the
		// script and its way there cost, not what spelling does.
		keys := make([][]string, keyCount)
		for key, t := range takes(dims, false, perSecond(plenty)) {
			for _, c := range t.Charges {
				keys[key] = append(keys[key], fmt.Sprintf("hw:{hw}:b:%s:%s", c.Bucket.Dimension, c.Bucket.ID))
			}
		}
		// As the header of lua/admit.lua says: incarnation, ttl, one decision of dims
		// buckets without counters and claims, one rate, and no fence.
		limit := strconv.Itoa(plenty * 1_000_000)
		args := []string{"00", "10000", strconv.Itoa(dims), "0", "0", "1", limit, "1000000", limit, "0", "9007199254740991", "0"}
		for range dims {
			args = append(args, "1", "1000000")
		}
		return &target{sends: scripts, close: client.Close, decide: func(ctx context.Context, key int) (bool, error) {
			cmd := client.B().Evalsha().Sha1(lua.Admit.SHA).Numkeys(int64(dims)).Key(keys[key]...).Arg(args...).Build()
			reply, err := client.Do(ctx, cmd).AsIntSlice()
			return err == nil && reply[2] == 1, err
		}}, nil
	}
}

// newStore opens a store with its defaults, but for patience.
func newStore(addr string) (*redisstore.Store, error) {
	return redisstore.New(redisstore.Options{Address: addr, Timeout: patience, Logger: quiet})
}

// closer ends a store and gives back what it holds.
func closer(s limiter.Store) func() {
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Close(ctx)
	}
}

// openStore asks the store alone.
func openStore(dims int, lease bool) opener {
	return func(ctx context.Context, addr string) (*target, error) {
		s, err := newStore(addr)
		if err != nil {
			return nil, err
		}
		return storeTarget(s, takes(dims, lease, perSecond(plenty))), nil
	}
}

// storeTarget decides by what a store says. A slot is given back at once, which
// is the shortest life a request can have.
func storeTarget(s limiter.Store, list []limiter.Take) *target {
	return &target{sends: scripts, close: closer(s), decide: func(ctx context.Context, key int) (bool, error) {
		v, err := s.Admit(ctx, list[key])
		if err == nil && v.OK && len(list[key].Slots) > 0 {
			s.Settle(limiter.Settlement{Free: []limiter.SlotID{list[key].Slots[0].Slot}})
		}
		return v.OK, err
	}}
}

// openLimiter asks the limiter, which asks the store, and ends every request.
func openLimiter(dims int, lease bool) opener {
	return func(ctx context.Context, addr string) (*target, error) {
		s, err := newStore(addr)
		if err != nil {
			return nil, err
		}
		cfg := limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{}, Logger: quiet}
		for _, d := range dimensions[:dims] {
			rate := perSecond(plenty)
			rule := limiter.Rule{Requests: &rate}
			if lease && d == limiter.User {
				rule.MaxInFlight = 1000
			}
			cfg.Limits[d] = limiter.Limit{Rule: rule}
		}
		ids := identities()
		return limiterTarget(s, cfg, func(key int) limiter.Request {
			id := &ids[key]
			return limiter.Request{Identities: limiter.Identities{APIKey: id[0], User: id[1], Team: id[2], Model: id[3]}}
		})
	}
}

// limiterTarget asks a limiter over s, and ends every request at once.
func limiterTarget(s limiter.Store, cfg limiter.Config, request func(key int) limiter.Request) (*target, error) {
	l, err := limiter.New(cfg, s, fleet.Solo("compare"))
	if err != nil {
		return nil, err
	}
	end := func() {
		l.Close()
		closer(s)()
	}
	return &target{sends: scripts, close: end, decide: func(ctx context.Context, key int) (bool, error) {
		g, err := l.Admit(ctx, request(key))
		if err != nil {
			return false, err
		}
		g.Done(limiter.Outcome{Tokens: -1})
		return true, nil
	}}, nil
}

// refusal reports whether an error of a limiter only says no.
func refusal(err error) bool {
	var r *limiter.Refusal
	return errors.As(err, &r)
}
