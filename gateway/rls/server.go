package rls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/headway-limiter/headway/limiter"
)

const (
	// maxMessage bounds a question; a descriptor takes about 100 bytes.
	maxMessage = 64 << 10
	// maxDescriptors bounds what one question may cost the store.
	maxDescriptors = 64
	// healthEvery is how often the health service is told about the store.
	healthEvery = 200 * time.Millisecond
)

// Meaning says what descriptors mean. The zero Meaning limits only those that
// bring a limit along.
type Meaning struct {
	Identities []Identity // several may have one key
	Limits     []Limit    // the first that matches a descriptor applies
	// AllLevels tells proxies, and through their headers perhaps callers, the
	// levels of buckets that are not one caller's own.
	AllLevels bool
}

// Options are what a Server needs besides its limiter.
type Options struct {
	Meaning
	// Ready tells the health service whether questions can be answered; nil:
	// always.
	Ready      func() bool
	TLS        *tls.Config           // nil: plain text
	Logger     *slog.Logger          // nil: slog.Default()
	Registerer prometheus.Registerer // nil: metrics stay private
}

// Server is a rate limit service. It is safe for concurrent use.
type Server struct {
	pb.UnimplementedRateLimitServiceServer
	limiter *limiter.Limiter
	opts    Options
	rules   atomic.Pointer[rules]
	log     *slog.Logger
	answers *prometheus.CounterVec
	grpc    *grpc.Server
	health  *health.Server

	quit chan struct{}
	done sync.WaitGroup
	once sync.Once
}

// New returns a service on l, which stays the caller's to close, after Close. It
// starts one goroutine. The error is a metric that exists already.
func New(l *limiter.Limiter, o Options) (*Server, error) {
	if o.Ready == nil {
		o.Ready = func() bool { return true }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{
		limiter: l, opts: o, log: o.Logger, health: health.NewServer(), quit: make(chan struct{}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headway_rls_answers_total", Help: "Answers of the rate limit service, by code: ok, over_limit, unavailable, invalid.",
		}, []string{"code"}),
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(s.answers); err != nil {
			return nil, fmt.Errorf("rls: metrics: %w", err)
		}
	}
	s.Reconfigure(o.Meaning)
	settings := []grpc.ServerOption{grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(1000),
		grpc.ConnectionTimeout(5 * time.Second), grpc.UnaryInterceptor(s.survive)}
	if o.TLS != nil {
		settings = append(settings, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	s.grpc = grpc.NewServer(settings...)
	pb.RegisterRateLimitServiceServer(s.grpc, s)
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.tellHealth()
	s.done.Go(s.watch)
	return s, nil
}

// Reconfigure changes what descriptors mean, from the next question on.
func (s *Server) Reconfigure(m Meaning) { s.rules.Store(newRules(m)) }

// Serve answers on ln, which it closes, until Close. It returns nil then.
func (s *Server) Serve(ln net.Listener) error {
	if err := s.grpc.Serve(ln); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("rls: serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// Close stops listening, answers what is being asked, and ends every goroutine;
// when ctx is done first, what is left is cut off. Further calls do nothing.
func (s *Server) Close(ctx context.Context) {
	s.once.Do(func() {
		close(s.quit)
		s.done.Wait()
		s.health.Shutdown() // watchers hear of it, and proxies go elsewhere
		stopped := make(chan struct{})
		go func() {
			s.grpc.GracefulStop()
			close(stopped)
		}()
		select {
		case <-stopped:
		case <-ctx.Done():
			s.grpc.Stop()
			<-stopped
		}
	})
}

// watch keeps the health service informed.
func (s *Server) watch() {
	tick := time.NewTicker(healthEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
			s.tellHealth()
		}
	}
}

func (s *Server) tellHealth() {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if s.opts.Ready() {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
	s.health.SetServingStatus(pb.RateLimitService_ServiceDesc.ServiceName, state)
}

// ShouldRateLimit implements the service.
func (s *Server) ShouldRateLimit(ctx context.Context, q *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	rules := s.rules.Load()
	parts, err := rules.readAll(q)
	if err != nil {
		s.answers.WithLabelValues("invalid").Inc()
		return nil, status.Error(codes.InvalidArgument, "rls: "+err.Error())
	}
	var asks, back, spent []limiter.Ask
	for _, p := range parts {
		asks, back, spent = append(asks, p.asks...), append(back, p.back...), append(spent, p.spent...)
	}
	err = s.limiter.Correct(back, true)
	var d limiter.Decision
	if err == nil {
		d, err = s.limiter.Decide(ctx, asks)
	}
	// Whatever the answer is, what was spent is spent.
	err = errors.Join(err, s.limiter.Correct(spent, false))
	switch {
	case errors.Is(err, limiter.ErrUnavailable):
		s.answers.WithLabelValues("unavailable").Inc()
		return nil, status.Error(codes.Unavailable, "rls: limits cannot be checked right now")
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		s.answers.WithLabelValues("invalid").Inc()
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if d.OK {
		s.answers.WithLabelValues("ok").Inc()
	} else {
		s.answers.WithLabelValues("over_limit").Inc()
	}
	return rules.respond(d, parts), nil
}

// readAll turns a question into what each of its descriptors asks.
func (r *rules) readAll(q *pb.RateLimitRequest) ([]part, error) {
	list := q.GetDescriptors()
	switch {
	case q.GetDomain() == "":
		return nil, errors.New("the domain is empty")
	case len(list) == 0:
		return nil, errors.New("there are no descriptors")
	case len(list) > maxDescriptors:
		return nil, fmt.Errorf("%d descriptors are more than %d", len(list), maxDescriptors)
	}
	hits := int64(q.GetHitsAddend())
	if hits == 0 {
		hits = 1 // proto3 cannot tell 0 from absent here
	}
	parts := make([]part, len(list))
	for i, d := range list {
		var err error
		if parts[i], err = r.read(q.GetDomain(), d, hits); err != nil {
			return nil, fmt.Errorf("descriptor %d: %w", i+1, err)
		}
	}
	return parts, nil
}

// survive turns a panic into an error of that call.
func (s *Server) survive(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("rls: panic", "method", info.FullMethod, "panic", p, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "rls: internal error")
		}
	}()
	return next(ctx, q)
}
