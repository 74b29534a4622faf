package replica

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// TestReplicasMeetInRedis: replicas that know no address of each other, or one of
// the time before, become a fleet by the Redis that they share; so do those who
// replace them all, and whoever leaves takes its address along.
func TestReplicasMeetInRedis(t *testing.T) {
	server := redisproc.Start(t)
	gone := "[]"
	for range 2 {
		var replicas []*Replica
		for i := range 3 {
			join := "[]"
			if i == 0 {
				join = gone
			}
			replicas = append(replicas, startMeeting(t, server.Addr(), join))
		}
		for i, r := range replicas {
			storetest.Eventually(t, 20*time.Second, fmt.Sprintf("replica %d sees three", i), func() bool { return r.Members() == 3 })
		}
		gone = fmt.Sprintf("[%q]", replicas[0].GossipAddr())
		for i, r := range replicas {
			if err := r.Shutdown(t.Context()); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		}
		if left := server.Do("ZRANGE", "hw:{hw-fleet}:addresses", "0", "-1"); len(left.([]any)) > 0 {
			t.Errorf("all have left: got addresses %v", left)
		}
	}
}

// startMeeting starts a replica whose fleet.join is join.
func startMeeting(t *testing.T, redis, join string) *Replica {
	t.Helper()
	cfg, err := config.Parse(fmt.Appendf(nil, `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", drain: {delay: 0s}}
redis: {mode: standalone, address: %q, timeout: 5s}
fleet: {bind: "127.0.0.1:0", join: %s}
anonymous: true
upstreams: [{name: up, url: "http://127.0.0.1:9", kind: openai}]
routes: [{path: "/v1/*", upstream: up}]
`, redis, join), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Start(t.Context(), cfg, Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Shutdown(t.Context()) })
	return r
}
