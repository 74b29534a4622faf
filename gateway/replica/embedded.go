package replica

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Embedded is a Redis inside this process, for trying Headway out and for
// tests. It keeps nothing across restarts, and it is several times slower than
// a redis-server.
type Embedded struct{ server *miniredis.Miniredis }

// StartEmbedded starts one on a free loopback port.
func StartEmbedded() (*Embedded, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // keys expire by the same clock that TIME tells
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("replica: embedded redis: %w", err)
	}
	return &Embedded{m}, nil
}

// Addr is its host:port.
func (e *Embedded) Addr() string { return e.server.Addr() }

// Close ends it; its data is gone.
func (e *Embedded) Close() { e.server.Close() }
