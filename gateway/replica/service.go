package replica

import (
	"context"
	"net"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/rls"
	"github.com/headway-limiter/headway/limiter"
)

// service is the rate limit service for proxies with its listener.
type service struct {
	*rls.Server
	listener net.Listener
}

// openService starts the rate limit service, if there is to be one.
func (r *Replica) openService() error {
	c := r.cfg.Load().RateLimitService
	if c.Listen == "" {
		return nil
	}
	encrypted, err := r.openTLS("rate_limit_service.tls", c.TLS, "h2")
	if err != nil {
		return err
	}
	s, err := rls.New(r.limiter, rls.Options{
		Meaning: meaning(c), TLS: encrypted, Ready: r.gateway.Ready, Logger: r.log, Registerer: r.registry,
	})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", c.Listen)
	if err != nil {
		s.Close(context.Background())
		return unopened("rate_limit_service.listen", err)
	}
	r.service = &service{s, ln}
	go func() {
		if err := s.Serve(ln); err != nil {
			r.failed <- err
		}
	}()
	return nil
}

// ServiceAddr is where the rate limit service listens; empty without one.
func (r *Replica) ServiceAddr() string {
	if r.service == nil {
		return ""
	}
	return r.service.listener.Addr().String()
}

// meaning translates the configuration of descriptors.
func meaning(c config.RateLimitService) rls.Meaning {
	m := rls.Meaning{AllLevels: c.Levels == "all"}
	for _, e := range c.Identities {
		m.Identities = append(m.Identities, rls.Identity{
			Key: e.Key, Dimension: limiter.Dimension(e.Dimension), Charge: rls.Charge(e.Charge),
		})
	}
	for _, l := range c.Limits {
		limit := rls.Limit{Domain: l.Domain, Rate: *l.Requests.Limiter()}
		for _, e := range l.Entries {
			limit.Entries = append(limit.Entries, rls.Entry{Key: e.Key, Value: e.Value})
		}
		m.Limits = append(m.Limits, limit)
	}
	return m
}
