package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Probe asks an agent now and then whether it is well.
type Probe struct {
	Path     string        `yaml:"path" help:"path of a GET request that an agent which is well answers below 400; empty: requests alone show how it is"`
	Interval time.Duration `yaml:"interval" help:"pause between two probes, and how long one may take"`
}

// defaultQueueDepth is how many wait for one agent.
const defaultQueueDepth = 64

func defaultProbe() Probe { return Probe{Interval: 5 * time.Second} }

// IsAgent reports whether u takes a bounded number of requests at once.
func (u Upstream) IsAgent() bool { return u.Slots > 0 }

// maxSlots bounds the slots of one agent: in micro-slots they stay exact numbers in
// the store's scripts.
const maxSlots = 1_000_000

// agent checks what makes an upstream an agent. One built in Go may leave all of it out.
func (k *checker) agent(at string, u Upstream) {
	if u.Slots < 0 || u.Slots > maxSlots {
		k.wrong(at+".slots", fmt.Sprintf("write how many requests it takes at once, up to %d, or 0 for no bound", maxSlots), "%d is no such number", u.Slots)
	}
	k.atLeast(at+".queue_depth", int64(u.QueueDepth), 0)
	for i, tag := range u.Tags {
		if tag == "" {
			k.wrong(fmt.Sprintf("%s.tags[%d]", at, i), "write a word, or remove it", "the tag is empty")
		}
	}
	if p := u.Probe; p.Path != "" {
		if p.Path[0] != '/' {
			k.wrong(at+".probe.path", "begin it with a slash, such as /health", "%q is no path", p.Path)
		}
		k.positive(at+".probe.interval", p.Interval)
	}
	if u.Slots != 0 || k.unread(at+".slots") {
		return
	}
	for _, field := range []string{"queue_depth", "probe"} {
		if k.written(at + "." + field) {
			k.warn(at+"."+field, "add slots, or remove it", "has no effect: without slots the upstream is no agent")
		}
	}
}

// sharing are the fields of the wait line by which other things are shared, too,
// whether it is on or not: agents, and the quotas of providers and limits that batch
// work waits for.
var sharing = map[string]bool{"tenant_dimension": true, "weights": true, "default_weight": true}

// shares reports whether there is something of that kind. Any caller may say that its
// request is batch work, so a provider with a throttle is enough.
func (c *Config) shares() bool {
	return c.Batch.Enabled || slices.ContainsFunc(c.Keys, func(k Key) bool { return k.Batch }) ||
		slices.ContainsFunc(c.Upstreams, func(u Upstream) bool { return u.IsAgent() || u.Throttle.Enabled })
}

// tagged checks the tags that a route asks for: some upstream has to have them all.
func (k *checker) tagged(at string, r Route) {
	best := len(r.Tags) // the fewest that one of its upstreams lacks
	missing := ""
	for _, u := range k.Upstreams {
		if !slices.Contains(r.Candidates(), u.Name) {
			continue
		}
		lacks := slices.DeleteFunc(slices.Clone(r.Tags), u.HasTag)
		if len(lacks) == 0 {
			return
		}
		if missing == "" || len(lacks) < best {
			best, missing = len(lacks), strings.Join(lacks, ", ")
		}
	}
	if missing != "" {
		k.wrong(at+".tags", "give an upstream of the route all of them, or remove some", "no upstream of the route has all of these tags: the best lacks %s", missing)
	}
}

// HasTag reports whether u has a tag.
func (u Upstream) HasTag(tag string) bool { return slices.Contains(u.Tags, tag) }
