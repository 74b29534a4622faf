package gossip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"
)

const (
	// eager is the pause between attempts while the node is alone, and after a
	// contact: refuting each other's death takes two exchanges.
	eager      = time.Second
	maxHurried = 5
	// resolveTimeout bounds one look-up of a name.
	resolveTimeout = 3 * time.Second
	// warnEvery is the least time between two warnings of one name.
	warnEvery = 10 * time.Minute
	// registryTimeout bounds one question to the registry.
	registryTimeout = 2 * time.Second
	// maxKnown bounds the addresses that are tried again.
	maxKnown = 256
)

// Join contacts the given "host:port" now and returns how many replicas are
// there, members already or not; this one does not count. The error says what
// went wrong if there are none. The addresses are tried again later like those
// of the configuration.
func (n *Node) Join(addrs ...string) (int, error) {
	for _, a := range addrs {
		if host, port, err := splitAddr(a); err != nil || host == "" || port == 0 {
			return 0, fmt.Errorf("gossip: join: %q is not host:port", a)
		}
	}
	n.remember(addrs)
	answered, members, err := n.contact(context.Background(), addrs)
	if answered+members > 0 {
		err = nil
	}
	return answered + members, err
}

// remember adds addresses to those tried again.
func (n *Node) remember(addrs []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addrs {
		if len(n.known) < maxKnown {
			n.known[a] = true
		}
	}
}

// met returns what the registry tells, having told it of this node.
func (n *Node) met(ctx context.Context) []string {
	if n.cfg.Registry == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, registryTimeout)
	defer cancel()
	addrs, err := n.cfg.Registry(ctx, n.addr)
	if err != nil {
		n.cfg.Logger.Debug("gossip: registry", "err", err)
	}
	return addrs
}

// keepJoined tries the known addresses that are not members, for ever, and with
// them those that the registry tells at the time. When all are, it exchanges tables with a random member: memberlist tells of a newcomer
// only so often, so at eight replicas about one telling in 200 is missed, and one
// who knows no address but those of members would miss it for half a minute. A
// digest of somebody who is no member hurries the exchange: whoever sends it
// knows this node, and is likely to be known to others.
func (n *Node) keepJoined(ctx context.Context) {
	for hurried := 0; ; {
		n.mu.Lock()
		addrs := make([]string, 0, len(n.known))
		for a := range n.known {
			addrs = append(addrs, a)
		}
		n.mu.Unlock()
		addrs = append(addrs, n.met(ctx)...)
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		contacted, _, err := n.contact(ctx, addrs)
		if err != nil {
			n.cfg.Logger.Debug("gossip: rejoin", "err", err)
		}
		if hurried++; contacted == 0 {
			hurried = 0
			n.exchange()
		}
		if !n.rest(ctx, n.pause(hurried)) {
			return
		}
	}
}

// rest waits out a pause between attempts, less when a stranger is heard; false
// means that the node closes.
func (n *Node) rest(ctx context.Context, pause time.Duration) bool {
	least := min(pause, eager/2) // so that strangers cause at most two exchanges a second
	select {
	case <-ctx.Done():
		return false
	case <-time.After(least):
	}
	select {
	case <-ctx.Done():
		return false
	case <-n.stranger:
	case <-time.After(pause - least):
	}
	return true
}

// exchange swaps tables with a random member.
func (n *Node) exchange() {
	n.mu.Lock()
	addrs := slices.Collect(maps.Values(n.peers))
	n.mu.Unlock()
	if len(addrs) == 0 {
		return
	}
	if _, err := n.list.Join(addrs[:1]); err != nil { // maps are walked in random order
		n.cfg.Logger.Debug("gossip: exchange", "addr", addrs[0], "err", err)
	}
}

// pause is how long to wait before the next attempt, after so many in a row that
// found somebody. An address that always answers and never is a member's, such as
// a load balancer's, is worth a few quick attempts and then the usual ones.
func (n *Node) pause(hurried int) time.Duration {
	if n.Members() == 1 || hurried > 0 && hurried <= maxHurried {
		return eager/2 + rand.N(eager)
	}
	return n.cfg.RejoinMin + rand.N(n.cfg.RejoinMax-n.cfg.RejoinMin+1)
}

// contact exchanges tables with every address behind addrs that is not a member
// yet, one after the other. It returns how many answered and how many need not be
// asked, being members.
func (n *Node) contact(ctx context.Context, addrs []string) (answered, members int, err error) {
	var errs []error
	for _, a := range addrs {
		resolved, err := resolve(ctx, a)
		n.resolved(a, err)
		if err != nil {
			errs = append(errs, fmt.Errorf("gossip: join %s: %w", a, err))
			continue
		}
		for _, r := range resolved {
			switch {
			case ctx.Err() != nil:
				return answered, members, ctx.Err()
			case r == n.addr:
				continue
			case n.isMember(r):
				members++
				continue
			}
			if _, err := n.list.Join([]string{r}); err != nil {
				errs = append(errs, fmt.Errorf("gossip: join %s: %w", a, err))
				continue
			}
			answered++
		}
	}
	return answered, members, errors.Join(errs...)
}

// resolved logs that a name leads nowhere when it begins to, once a warnEvery as
// long as it does, and its end. A look-up that was cut off says nothing.
func (n *Node) resolved(addr string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, lost := n.lost[addr]
	switch now := time.Now(); {
	case errors.Is(err, context.Canceled):
	case err == nil && lost:
		delete(n.lost, addr)
		n.cfg.Logger.Info("gossip: name resolves", "addr", addr)
	case err != nil && (lost && now.Sub(at) >= warnEvery || !lost && len(n.lost) < maxKnown):
		n.lost[addr] = now
		n.cfg.Logger.Warn("gossip: cannot join: the name does not resolve", "addr", addr, "err", err)
	}
}

func (n *Node) isMember(addr string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.peers {
		if a == addr {
			return true
		}
	}
	return false
}

// resolve returns the "ip:port" of all addresses that a name has now.
func resolve(ctx context.Context, addr string) ([]string, error) {
	host, port, err := splitAddr(addr)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip != nil {
		return []string{net.JoinHostPort(ip.String(), strconv.Itoa(port))}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, ip := range ips {
		ips[i] = net.JoinHostPort(ip, strconv.Itoa(port))
	}
	return ips, nil
}
