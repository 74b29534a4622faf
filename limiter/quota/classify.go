package quota

import (
	"net/http"
	"strings"
)

// Class is what a response means for what comes next.
type Class string

const (
	ClassOK       Class = "ok"       // served
	ClassQuota    Class = "quota"    // a quota is used up and refills: pause until it does
	ClassDaily    Class = "daily"    // the day's quota is used up: stop, don't wait
	ClassTerminal Class = "terminal" // no money, no permission: until a human acts
	ClassOverload Class = "overload" // the provider is overloaded: slow down, nobody's quota
	ClassFailure  Class = "failure"  // something else went wrong, ours or theirs
)

// terminal are codes and types of errors that waiting does not cure.
var terminal = []string{
	"insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached", "organization_spend_limit_exceeded",
	"project_spend_limit_exceeded", "organization_usage_limit_exceeded", "account_deactivated", "billing_not_active",
}

// overloaded are codes and types of errors that say so.
var overloaded = []string{"overloaded_error"}

// Classify tells what a response means. body is its first bytes if it is an
// error, else nil. A 200 that carries Retry-After is how Azure refuses a stream, so
// headers count there too.
func Classify(status int, h http.Header, body []byte) Class {
	if status < 400 {
		if retry := (&reader{}); retry.retry(h) {
			return ClassQuota
		}
		return ClassOK
	}
	p, _ := problemOf(body)
	words := []string{p.Type, p.code()}
	switch {
	case status == http.StatusPaymentRequired, anyOf(words, terminal), outOfCredit(p.Message):
		return ClassTerminal
	case status == 529, anyOf(words, overloaded):
		return ClassOverload
	case status == http.StatusTooManyRequests || p.Status == "RESOURCE_EXHAUSTED":
		if daily(p) {
			return ClassDaily
		}
		return ClassQuota
	case status == http.StatusServiceUnavailable:
		return ClassOverload
	case status == http.StatusForbidden && (h.Get("X-Ratelimit-Remaining") == "0" || h.Get("Retry-After") != ""):
		return ClassQuota // GitHub refuses so
	}
	return ClassFailure
}

func anyOf(words, list []string) bool {
	for _, w := range words {
		for _, l := range list {
			if w == l {
				return true
			}
		}
	}
	return false
}

// outOfCredit reports what Anthropic says in words alone, with status 400.
func outOfCredit(message string) bool {
	return strings.Contains(strings.ToLower(message), "credit balance is too low")
}

// daily reports whether Google's details name a quota of the day.
func daily(p problem) bool {
	for _, d := range p.Details {
		for _, v := range d.Violations {
			if strings.Contains(v.QuotaID, "PerDay") {
				return true
			}
		}
	}
	return false
}
