package gateway

import (
	"net/http"
	"strings"
)

// Anthropic's API has error shapes of its own, and its SDKs sort by their types.
// Its callers are known by the path of its messages, or by the header that its
// SDKs send along.

const (
	messagesPath = "/v1/messages"
	// anthropicHost takes keys in X-Api-Key; its Bearer tokens are those of logins.
	anthropicHost = "api.anthropic.com"
)

// speaksAnthropic reports whether r's caller expects answers in that API's shape.
func speaksAnthropic(r *http.Request) bool {
	if r.Header.Get("Anthropic-Version") != "" {
		return true
	}
	_, rest, found := strings.Cut(r.URL.Path, messagesPath)
	return found && (rest == "" || rest[0] == '/')
}

// anthropicError is the body of an error in that shape. Headway's own members
// (code, details) stay: SDKs pass them on untouched.
type anthropicError struct {
	Type      string    `json:"type"` // always "error"
	Error     errorBody `json:"error"`
	RequestID string    `json:"request_id,omitempty"`
}

// anthropicKinds are that API's types of errors by status. Other statuses of 500
// and more are api_error, the rest invalid_request_error.
var anthropicKinds = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "overloaded_error",
	http.StatusGatewayTimeout:        "timeout_error",
}

func anthropicKind(status int) string {
	switch kind := anthropicKinds[status]; {
	case kind != "":
		return kind
	case status >= http.StatusInternalServerError:
		return "api_error"
	}
	return kindInvalid
}

// anthropicErrorOf puts f into that shape.
func anthropicErrorOf(f failure, id string) anthropicError {
	e := anthropicError{Type: "error", Error: f.content(), RequestID: id}
	e.Error.Type = anthropicKind(f.status)
	return e
}
