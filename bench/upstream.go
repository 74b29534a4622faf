package bench

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Upstream is a provider that listens. URL is its base address.
type Upstream struct {
	*Provider
	URL string

	server *http.Server
	done   chan struct{}
}

// StartUpstream serves a new provider on listen ("127.0.0.1:0" picks a free
// port). Close ends it.
func StartUpstream(listen string, cfg ProviderConfig) (*Upstream, error) {
	p, err := NewProvider(cfg)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("bench: provider: %w", err)
	}
	u := &Upstream{Provider: p, URL: "http://" + ln.Addr().String(), done: make(chan struct{})}
	u.server = &http.Server{
		Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		// Clients that leave and connections cut on purpose are no news.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() {
		defer close(u.done)
		if err := u.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("bench: provider: %v", err)) // a listener that stops accepting judges nothing
		}
	}()
	return u, nil
}

// Close ends the provider at once: open connections are cut.
func (u *Upstream) Close() {
	u.server.Close()
	<-u.done
}
