package main

import (
	"context"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
)

// openRedisRate allows each limit in turn, over go-redis with its defaults.
func openRedisRate(limits int) opener {
	return func(_ context.Context, addr string) (*target, error) {
		// Defaults: ten connections for each core, and three tries.
		client := redis.NewClient(&redis.Options{Addr: addr})
		l := redis_rate.NewLimiter(client)
		limit := redis_rate.PerSecond(plenty)
		list := allNames()
		return &target{
			sends: []string{"evalsha"}, close: func() { client.Close() },
			decide: func(ctx context.Context, key int) (bool, error) {
				for _, name := range list[key][:limits] {
					if r, err := l.Allow(ctx, name, limit); err != nil || r.Allowed == 0 {
						return false, err
					}
				}
				return true, nil
			},
		}, nil
	}
}

// openThrottled does the same with throttled's GCRA, which reads the bucket, works
// out its next state and sets it if nobody else has. Under contention it gives up
// after ten tries, which is an error to its caller.
func openThrottled(limits int) opener {
	return func(_ context.Context, addr string) (*target, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		store, err := goredisstore.NewCtx(client, "throttled:")
		if err != nil {
			return nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(plenty), MaxBurst: plenty})
		if err != nil {
			return nil, err
		}
		list := allNames()
		return &target{
			sends: []string{"eval", "evalsha", "time", "get", "setnx", "expire"}, close: func() { client.Close() },
			decide: func(ctx context.Context, key int) (bool, error) {
				for _, name := range list[key][:limits] {
					if limited, _, err := l.RateLimitCtx(ctx, name, 1); err != nil || limited {
						return false, err
					}
				}
				return true, nil
			},
		}, nil
	}
}

// windowScript counts hits in a window that begins with the first of them.
var windowScript = rueidis.NewLuaScript(`
local hits = redis.call('INCRBY', KEYS[1], ARGV[1])
if hits == tonumber(ARGV[1]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return hits`)

// openWindow is a fixed window over rueidis, one limit after the other. It counts
// refused hits too, and lets twice the limit through around the end of a window.
func openWindow(limits int) opener {
	return func(_ context.Context, addr string) (*target, error) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
		if err != nil {
			return nil, err
		}
		list := allNames()
		args := []string{"1", strconv.FormatInt(time.Second.Milliseconds(), 10)}
		return &target{
			sends: []string{"evalsha"}, close: client.Close,
			decide: func(ctx context.Context, key int) (bool, error) {
				for _, name := range list[key][:limits] {
					if hits, err := windowScript.Exec(ctx, client, []string{name}, args).AsInt64(); err != nil || hits > plenty {
						return false, err
					}
				}
				return true, nil
			},
		}, nil
	}
}

// allNames spells the keys in advance, as for the bare script.
func allNames() [][4]string {
	list := make([][4]string, keyCount)
	for key := range list {
		list[key] = names(key)
	}
	return list
}
