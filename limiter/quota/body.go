package quota

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// maxBody bounds how much of a body is looked at, in bytes.
const maxBody = 64 << 10

// problem is an error body, in any of the shapes that providers use. What a
// shape does not have stays empty.
type problem struct {
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`   // text (OpenAI) or a number (Google, OpenRouter)
	Status  string          `json:"status"` // Google: RESOURCE_EXHAUSTED
	Message string          `json:"message"`
	Details []detail        `json:"details"`
	// Metadata carries headers that OpenRouter's own answer lacks.
	Metadata struct {
		Headers map[string]string `json:"headers"`
	} `json:"metadata"`
}

// detail is one of Google's error details.
type detail struct {
	Type       string `json:"@type"`
	RetryDelay string `json:"retryDelay"`
	Violations []struct {
		QuotaID    string      `json:"quotaId"`
		QuotaValue json.Number `json:"quotaValue"`
	} `json:"violations"`
}

// text is the code as text.
func (p problem) code() string { return strings.Trim(string(p.Code), `"`) }

// problemOf finds the error in a body: {"error": {...}}, [{"error": ...}], or an
// error that is JSON in a text, once more inside.
func problemOf(body []byte) (problem, bool) {
	body = bytes.TrimSpace(body[:min(len(body), maxBody)])
	for range 3 {
		switch {
		case bytes.HasPrefix(body, []byte("[")):
			var list []json.RawMessage
			if json.Unmarshal(body, &list) != nil || len(list) == 0 {
				return problem{}, false
			}
			body = list[0]
		case bytes.HasPrefix(body, []byte(`"`)):
			var inner string
			if json.Unmarshal(body, &inner) != nil {
				return problem{}, false
			}
			body = []byte(inner)
		default:
			return object(body)
		}
	}
	return problem{}, false
}

// object reads one error object.
func object(body []byte) (problem, bool) {
	var outer struct {
		Error json.RawMessage `json:"error"`
		problem
	}
	if json.Unmarshal(body, &outer) != nil {
		return problem{}, false
	}
	if len(outer.Error) == 0 {
		return outer.problem, outer.Message != "" || outer.Type != ""
	}
	var p problem
	if json.Unmarshal(outer.Error, &p) == nil {
		// An error whose message is another error in JSON.
		if inner, ok := strings.CutPrefix(p.Message, "{"); ok {
			if deeper, ok := object([]byte("{" + inner)); ok && len(deeper.Details) > 0 {
				return deeper, true
			}
		}
		return p, true
	}
	var text string
	if json.Unmarshal(outer.Error, &text) == nil {
		return problem{Message: text}, true
	}
	return problem{}, false
}

// body reads what only bodies tell.
func (r *reader) body(body []byte) {
	if len(body) == 0 {
		return
	}
	p, ok := problemOf(body)
	if !ok {
		return
	}
	if len(p.Metadata.Headers) > 0 {
		h := http.Header{}
		for name, value := range p.Metadata.Headers {
			h.Set(name, value)
		}
		r.table(h)
		if r.out.RetryAfter == Unknown {
			r.retry(h)
		}
	}
	for _, d := range p.Details {
		r.detail(d)
	}
}

// detail reads one of Google's error details.
func (r *reader) detail(d detail) {
	switch {
	case strings.HasSuffix(d.Type, "google.rpc.RetryInfo"):
		wait, ok := duration(d.RetryDelay)
		if !ok {
			r.doubt("retryDelay")
			return
		}
		r.out.RetryAfter = max(r.out.RetryAfter, wait)
	case strings.HasSuffix(d.Type, "google.rpc.QuotaFailure"):
		for _, v := range d.Violations {
			unit, window := googleQuota(v.QuotaID)
			o := r.at(key{unit, window, ""})
			o.Remaining = 0
			if limit, ok := count(v.QuotaValue.String()); ok {
				o.Limit = limit
			}
		}
	}
}

// googleQuota reads a quota's name, as in
// GenerateContentInputTokensPerModelPerMinute-FreeTier.
func googleQuota(id string) (unit Unit, window time.Duration) {
	unit = Requests
	switch {
	case strings.Contains(id, "InputToken"):
		unit = InputTokens
	case strings.Contains(id, "Token"):
		unit = Tokens
	}
	switch {
	case strings.Contains(id, "PerDay"):
		window = day
	case strings.Contains(id, "PerMinute"):
		window = minute
	}
	return unit, window
}

// ReadEvent reads the rate_limits.updated event of OpenAI's realtime API, given
// as JSON; nothing in it is for any other event.
func ReadEvent(event []byte) Reading {
	r := reader{found: map[key]*Observation{}, uses: map[string]*Use{}}
	r.out.RetryAfter, r.out.Cost = Unknown, Absent
	var e struct {
		Type   string `json:"type"`
		Limits []struct {
			Name      string  `json:"name"`
			Limit     float64 `json:"limit"`
			Remaining float64 `json:"remaining"`
			Reset     float64 `json:"reset_seconds"`
		} `json:"rate_limits"`
	}
	if json.Unmarshal(event, &e) != nil || e.Type != "rate_limits.updated" {
		return r.reading()
	}
	for _, l := range e.Limits {
		if l.Name != string(Requests) && l.Name != string(Tokens) {
			continue
		}
		o := r.at(key{Unit(l.Name), 0, ""})
		o.Refill = RefillContinuous
		if l.Limit >= 0 {
			o.Limit = int64(l.Limit)
		}
		if l.Remaining >= 0 {
			o.Remaining = int64(l.Remaining)
		} else {
			r.doubt(l.Name)
		}
		if d, ok := span(l.Reset); ok {
			o.Reset = d
		} else {
			r.doubt(l.Name)
		}
	}
	return r.reading()
}
