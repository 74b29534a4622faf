package config

import "time"

// DeferredAdmission configures the wait for token budgets. Off, a request that a
// budget cannot cover now is refused at once.
type DeferredAdmission struct {
	Enabled   bool `yaml:"enabled" help:"hold requests that a token budget refuses until it can cover them, first come first served"`
	MaxWaitMS int  `yaml:"max_wait_ms" help:"longest time held in milliseconds, after the wait line; server.timeouts.total bounds it too, and a request that would have to wait longer is refused at once"`
	MaxHeld   int  `yaml:"max_held" help:"requests held here at once"`
}

// MaxWait is the longest wait as a duration.
func (d DeferredAdmission) MaxWait() time.Duration {
	return time.Duration(d.MaxWaitMS) * time.Millisecond
}

func defaultDeferred() DeferredAdmission { return DeferredAdmission{MaxWaitMS: 5000, MaxHeld: 256} }

// mostHeld bounds max_held: whoever is held is looked at whenever somebody is.
const mostHeld = 10_000

// deferredAdmission checks the bounds of the wait, and that something is waited for.
func (k *checker) deferredAdmission() {
	const at = "rate_limiting.deferred_admission"
	d := k.RateLimiting.DeferredAdmission
	if d == (DeferredAdmission{}) && !k.written(at) {
		return // built in Go
	}
	k.atLeast(at+".max_wait_ms", int64(d.MaxWaitMS), 1)
	k.atLeast(at+".max_held", int64(d.MaxHeld), 1)
	if d.MaxWaitMS > maxWaitMS {
		k.wrong(at+".max_wait_ms", "write 3600000 or less", "%d ms is longer than an hour", d.MaxWaitMS)
	}
	if d.MaxHeld > mostHeld {
		k.wrong(at+".max_held", "write 10000 or less", "%d is above %d", d.MaxHeld, mostHeld)
	}
	if !d.Enabled {
		for _, name := range []string{"max_wait_ms", "max_held"} {
			if k.written(at + "." + name) {
				k.warn(at+"."+name, "set deferred_admission.enabled: true, or remove it", "has no effect without deferred_admission.enabled")
			}
		}
		return
	}
	if d.MaxWait() > k.Server.Timeouts.Total {
		k.warn(at+".max_wait_ms", "lower it, or raise server.timeouts.total", "no request lives longer than server.timeouts.total, %v", k.Server.Timeouts.Total)
	}
	if !k.budgets() {
		k.warn(at, "add tokens limits", "nothing is ever held: only requests refused by token budgets are")
	}
}

// budgets reports whether anybody has a token budget.
func (k *checker) budgets() bool {
	for _, d := range k.RateLimiting.dimensions() {
		if d.name == "per_backend" { // looked at when one is selected, too late to hold
			continue
		}
		if d.limit.Tokens != nil {
			return true
		}
		for _, o := range d.limit.Overrides {
			if o.Tokens != nil {
				return true
			}
		}
	}
	for _, key := range k.Keys {
		if key.RateLimit != nil && key.RateLimit.Tokens != nil {
			return true
		}
	}
	return false
}
