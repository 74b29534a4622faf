// Package agents hands out the slots of agents: upstreams that take a bounded number
// of requests at once, over the whole fleet.
package agents
