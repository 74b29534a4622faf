package gossip

import (
	"context"
	"slices"
	"time"

	"github.com/headway-limiter/headway/fleet"
)

// Source is a part of a replica that speaks with its like at others through the
// node's digests. Its methods must not block, nor call the node but for Hurry and
// View. They are called from several goroutines.
type Source interface {
	// Throttles is what the digest made at now says; the slices belong to the node.
	Throttles(now time.Time) []fleet.Throttle
	// Heard brings what a digest of another replica says, which was current at an
	// instant. It is called for each digest that is news, and now and then for
	// others.
	Heard(at time.Time, throttles []fleet.Throttle)
	// Members says how many live members there are, this one included, and whether
	// this is the one with the smallest name: it does what one has to do.
	Members(members int, leads bool)
}

// breath is the least time between two digests that were hurried.
const breath = 20 * time.Millisecond

// Attach makes s part of what the node says and hears from now on. Nothing may be
// attached twice.
func (n *Node) Attach(s Source) {
	n.source.Store(&s)
	n.refresh(time.Now())
	n.repeat()
}

// Hurry sends a digest to the members now instead of at the next interval. It does
// not wait for that.
func (n *Node) Hurry() {
	select {
	case n.hurried <- struct{}{}:
	default: // one that has not begun yet will do
	}
}

// breathe keeps a storm of news from becoming one of packets; false means that the
// node closes.
func (n *Node) breathe(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(breath):
		return true
	}
}

// repeat gives the source what every digest in the table says.
func (n *Node) repeat() {
	s := n.source.Load()
	if s == nil {
		return
	}
	type word struct {
		at        time.Time
		throttles []fleet.Throttle
	}
	var words []word
	n.mu.Lock()
	n.table.Heard(func(d fleet.Digest, heard time.Time) {
		if len(d.Throttles) > 0 {
			words = append(words, word{heard, slices.Clone(d.Throttles)})
		}
	})
	n.mu.Unlock()
	for _, w := range words {
		(*s).Heard(w.at, w.throttles)
	}
}
