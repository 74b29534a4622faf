package config

import "time"

// Queueing says how long requests wait for a saturated agent, and how streams
// are kept alive meanwhile.
type Queueing struct {
	QueueTimeout        time.Duration `yaml:"queue_timeout" help:"longest wait for a slot of an agent, from when a request first began to wait; then 503"`
	BalancerIdleTimeout time.Duration `yaml:"balancer_idle_timeout" help:"after how long without a byte the load balancer in front cuts a connection; only checked against queue_timeout; 0s: not told"`
	KeepAlive           time.Duration `yaml:"keep_alive" help:"how often a stream that has begun and waits for its next step sends a comment"`
}

func defaultQueueing() Queueing {
	return Queueing{QueueTimeout: 30 * time.Second, KeepAlive: 5 * time.Second}
}

// queueing checks the waits. A request that waits sends nothing before it is
// dispatched, so a balancer in front must bear with that silence.
func (k *checker) queueing() {
	const at = "queueing"
	q := k.Queueing
	if q == (Queueing{}) && !k.written(at) {
		return // built in Go, without agents
	}
	k.positive(at+".queue_timeout", q.QueueTimeout)
	k.positive(at+".keep_alive", q.KeepAlive)
	idle := q.BalancerIdleTimeout
	switch {
	case idle < 0:
		k.wrong(at+".balancer_idle_timeout", "write 0s or more", "%v is negative", idle)
	case idle > 0 && q.QueueTimeout > idle && !k.unread(at+".queue_timeout"):
		k.warn(at+".balancer_idle_timeout", "lower queue_timeout, or raise the balancer's idle timeout",
			"is below queue_timeout (%v): the balancer cuts requests that still wait", q.QueueTimeout)
	}
	if idle > 0 && q.KeepAlive >= idle && !k.unread(at+".keep_alive") {
		k.warn(at+".keep_alive", "lower keep_alive", "is not below balancer_idle_timeout (%v): the balancer cuts streams between two comments", idle)
	}
	k.waitsFit()
}

// waitsFit checks that a request that has waited for a slot has time left to be
// answered: a tenth of its total timeout, which waits count in.
func (k *checker) waitsFit() {
	const at = "queueing.queue_timeout"
	wait, total := k.Queueing.QueueTimeout, k.Server.Timeouts.Total
	switch {
	case !k.written(at) || k.unread(at):
	case wait > total:
		k.warn(at, "lower it, or raise server.timeouts.total", "is above server.timeouts.total (%v), which ends the request before", total)
	case wait > total*9/10:
		k.warn(at, "lower it, or raise server.timeouts.total", "is hardly below server.timeouts.total (%v), which cuts off who has waited that long", total)
	}
}
