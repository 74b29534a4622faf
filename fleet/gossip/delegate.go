package gossip

import (
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/headway-limiter/headway/fleet"
)

// delegate is what memberlist calls.
type delegate struct{ *Node }

var (
	_ memberlist.Delegate         = (*delegate)(nil)
	_ memberlist.EventDelegate    = (*delegate)(nil)
	_ memberlist.ConflictDelegate = (*delegate)(nil)
)

// NodeMeta implements memberlist.Delegate. There is none: digests say it all.
func (d *delegate) NodeMeta(int) []byte { return nil }

// NotifyMsg implements memberlist.Delegate: a digest has arrived.
func (d *delegate) NotifyMsg(b []byte) {
	digest, err := fleet.Decode(b)
	if err != nil {
		d.metrics.malformed.Inc()
		d.cfg.Logger.Debug("gossip: digest", "err", err)
		return
	}
	now := time.Now()
	d.mu.Lock()
	news := d.table.Merge(digest, now)
	many := len(d.peers) > d.cfg.DirectMembers
	_, member := d.peers[digest.Replica]
	d.mu.Unlock()
	if !member && digest.Replica != d.cfg.Name {
		select {
		case d.stranger <- struct{}{}:
		default:
		}
	}
	if !news {
		d.metrics.stale.Inc()
		return
	}
	d.metrics.news.Inc()
	if s := d.source.Load(); s != nil && len(digest.Throttles) > 0 {
		(*s).Heard(now, digest.Throttles)
	}
	if many {
		d.forward(digest.Replica, slices.Clone(b)) // b is reused after we return
	}
}

// GetBroadcasts implements memberlist.Delegate.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.queue.GetBroadcasts(overhead, limit)
}

// LocalState implements memberlist.Delegate: the whole table.
func (d *delegate) LocalState(bool) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.table.Encode(time.Now())
}

// MergeRemoteState implements memberlist.Delegate.
func (d *delegate) MergeRemoteState(b []byte, _ bool) {
	d.mu.Lock()
	news, err := d.table.MergeEncoded(b, time.Now())
	d.mu.Unlock()
	d.metrics.news.Add(float64(news))
	if news > 0 {
		d.repeat()
	}
	if err != nil {
		d.metrics.malformed.Inc()
		d.cfg.Logger.Warn("gossip: table of another replica", "err", err)
	}
}

// NotifyJoin implements memberlist.EventDelegate.
func (d *delegate) NotifyJoin(m *memberlist.Node) {
	if m.Name == d.cfg.Name {
		return
	}
	d.mu.Lock()
	d.peers[m.Name] = nodeAddr(m)
	d.mu.Unlock()
	d.cfg.Logger.Info("gossip: member joined", "replica", m.Name, "addr", nodeAddr(m))
}

// NotifyLeave implements memberlist.EventDelegate: m left or was declared dead.
func (d *delegate) NotifyLeave(m *memberlist.Node) {
	if m.Name == d.cfg.Name {
		return
	}
	d.mu.Lock()
	delete(d.peers, m.Name)
	d.table.Forget(m.Name)
	d.mu.Unlock()
	d.cfg.Logger.Info("gossip: member gone", "replica", m.Name, "left", m.State == memberlist.StateLeft)
}

// NotifyUpdate implements memberlist.EventDelegate. Metadata is not used.
func (d *delegate) NotifyUpdate(*memberlist.Node) {}

// NotifyConflict implements memberlist.ConflictDelegate.
func (d *delegate) NotifyConflict(existing, other *memberlist.Node) {
	d.cfg.Logger.Error("gossip: two replicas use one name; give each its own, or none",
		"replica", existing.Name, "addr", nodeAddr(existing), "other", nodeAddr(other))
}

func nodeAddr(m *memberlist.Node) string {
	return net.JoinHostPort(m.Addr.String(), strconv.Itoa(int(m.Port)))
}
