package replica

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headway-limiter/headway/gateway/config"
)

// TestServiceSharesLimits: what a proxy lets through counts at the gateway, and
// the other way round.
func TestServiceSharesLimits(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	cfg, err := config.Parse([]byte(strings.ReplaceAll(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
keys: [{id: a, key: key-a, user: ann}]
upstreams: [{name: u, url: "UPSTREAM", kind: http}]
routes: [{path: "/*", upstream: u}]
rate_limiting: {per_user: {requests: {limit: 3, per: 1h}}}
rate_limit_service: {listen: "127.0.0.1:0", identities: [{key: user, dimension: user}]}
redis: {timeout: 5s}
`, "UPSTREAM", upstream.URL)), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Start(context.Background(), cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Shutdown(context.Background())
	conn, err := grpc.NewClient(r.ServiceAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	byProxy := func() string {
		out, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(context.Background(), &pb.RateLimitRequest{
			Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
				{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "ann"}}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.OverallCode.String()
	}
	byGateway := func() string {
		q, err := http.NewRequest("GET", r.URL()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer key-a")
		out, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		out.Body.Close()
		return out.Status
	}
	for i, want := range []string{"OK", "200 OK", "OK"} {
		got := byProxy
		if i == 1 {
			got = byGateway
		}
		if s := got(); s != want {
			t.Errorf("request %d of 3: %s", i+1, s)
		}
	}
	if p, g := byProxy(), byGateway(); p != "OVER_LIMIT" || g != "429 Too Many Requests" {
		t.Errorf("after three: proxy %s, gateway %s", p, g)
	}
	next := *cfg
	next.RateLimitService.Identities = nil
	next.Redis.Timeout += time.Second
	if waiting, err := r.adopt(&next); err != nil || !slices.Equal(waiting, []string{"redis.timeout"}) {
		t.Fatalf("waits for a restart: %v, %v; want redis.timeout", waiting, err)
	}
	if p := byProxy(); p != "OK" {
		t.Errorf("after the entry was taken out of the configuration: %s", p)
	}
}
