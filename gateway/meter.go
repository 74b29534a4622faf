package gateway

import (
	"net/http"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// meter reads the usage that passes by in an answer. The nil meter reads
// nothing.
type meter struct {
	frames *frameScanner // of an event stream
	object *usageScanner // of a JSON object
}

// newMeter returns a meter for an answer that may tell its usage, else nil: of
// errors nothing is charged, and compressed bytes are not undone.
func newMeter(resp *http.Response, up *upstream, sse bool) *meter {
	plain := resp.Header.Get("Content-Encoding") == "" || resp.Header.Get("Content-Encoding") == "identity"
	switch {
	case up.Kind != config.KindOpenAI || resp.StatusCode >= http.StatusBadRequest || !plain:
		return nil
	case sse:
		return &meter{frames: &frameScanner{}}
	case mediaType(resp.Header) == "application/json":
		return &meter{object: &usageScanner{}}
	}
	return nil
}

// observe looks at a part of the answer; it does not keep it.
func (m *meter) observe(p []byte) {
	switch {
	case m == nil:
	case m.frames != nil:
		m.frames.scan(p)
	default:
		m.object.scan(p)
	}
}

// settle leaves in outcome what an answer cost. broke is why it ended early, nil
// if it was whole. Where the cost is not known, the estimate stands. Of an answer
// that broke off, or ended in an error event, what it told so far counts only if
// it is more than the estimate: the rest was used, too. One that was nothing but
// the provider's error is a failure, whatever its status.
func (m *meter) settle(outcome *limiter.Outcome, estimate int64, broke error) {
	if m == nil {
		return
	}
	u := m.object
	if m.frames != nil {
		u = &m.frames.usageScanner
	}
	used, told := u.usage.total()
	failed := m.failed() || broke != nil && !notTheirs(broke)
	switch {
	case told && (broke == nil && !m.failed() || used > estimate):
		outcome.Tokens = used
	case !told && failed && !m.served():
		outcome.Failed = true
	}
}

// usage is what a whole answer told; the zero usage if it broke off, or failed.
func (m *meter) usage(broke error) usage {
	switch {
	case m == nil, broke != nil, m.failed():
		return usage{}
	case m.frames != nil:
		return m.frames.usage
	}
	return m.object.usage
}

// failed reports whether the answer told an error of the provider's.
func (m *meter) failed() bool {
	if m.frames != nil {
		return m.frames.failed || m.frames.named
	}
	return m.object.failed
}

// served reports whether the answer told anything else before.
func (m *meter) served() bool {
	if m.frames != nil {
		return m.frames.served
	}
	return m.object.begun && !m.object.failed
}
