package main

import (
	"context"
	"net"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/gateway/rls"
	"github.com/headway-limiter/headway/limiter"
)

// proxyConns are the connections of the one proxy that asks, as a few workers of
// Envoy would hold.
const proxyConns = 4

// openService asks the rate limit service over gRPC, on this machine: client,
// service and Redis share its processors.
func openService(dims int) opener {
	return func(_ context.Context, addr string) (*target, error) {
		s, err := newStore(addr)
		if err != nil {
			return nil, err
		}
		cfg := limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{}, Logger: quiet}
		var meaning rls.Meaning
		for _, d := range dimensions[:dims] {
			rate := perSecond(plenty)
			cfg.Limits[d] = limiter.Limit{Rule: limiter.Rule{Requests: &rate}}
			meaning.Identities = append(meaning.Identities, rls.Identity{Key: string(d), Dimension: d})
		}
		l, err := limiter.New(cfg, s, fleet.Solo("compare"))
		if err != nil {
			return nil, err
		}
		service, err := rls.New(l, rls.Options{Meaning: meaning, Logger: quiet})
		if err != nil {
			return nil, err
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		go service.Serve(ln) // until close
		var clients [proxyConns]pb.RateLimitServiceClient
		var conns [proxyConns]*grpc.ClientConn
		for i := range conns {
			if conns[i], err = grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
				return nil, err
			}
			clients[i] = pb.NewRateLimitServiceClient(conns[i])
		}
		end := func() {
			for _, c := range conns {
				c.Close()
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			service.Close(ctx)
			l.Close()
			closer(s)()
		}
		questions := allQuestions(dims)
		return &target{sends: scripts, close: end, decide: func(ctx context.Context, key int) (bool, error) {
			r, err := clients[key%proxyConns].ShouldRateLimit(ctx, questions[key])
			return r.GetOverallCode() == pb.RateLimitResponse_OK, err
		}}, nil
	}
}

// allQuestions spells a proxy's question for every key in advance: a descriptor
// for each limit.
func allQuestions(dims int) []*pb.RateLimitRequest {
	list := make([]*pb.RateLimitRequest, keyCount)
	for key, names := range allNames() {
		q := &pb.RateLimitRequest{Domain: "compare"}
		for i, d := range dimensions[:dims] {
			q.Descriptors = append(q.Descriptors, &common.RateLimitDescriptor{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: string(d), Value: names[i]}},
			})
		}
		list[key] = q
	}
	return list
}
