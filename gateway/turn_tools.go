package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/headway-limiter/headway/gateway/config"
)

// maxCalls bounds the calls of one round; further ones are told so.
const maxCalls = 16

// toolCall is a model's wish to have a tool called.
type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"` // JSON, as far as the model can
	} `json:"function"`
}

// result is the message that answers a call.
func (c toolCall) result(text string) json.RawMessage {
	return mustJSON(map[string]string{"role": "tool", "tool_call_id": c.ID, "content": text})
}

// toolsOf describes the tools of s to its model.
func (t *turn) toolsOf(s *step) []any {
	out := make([]any, len(s.Tools))
	for i, name := range s.Tools {
		tool := t.tools[name]
		function := map[string]any{"name": tool.Name, "parameters": json.RawMessage(`{"type":"object"}`)}
		if tool.Parameters != "" {
			function["parameters"] = json.RawMessage(tool.Parameters)
		}
		if tool.Description != "" {
			function["description"] = tool.Description
		}
		out[i] = map[string]any{"type": "function", "function": function}
	}
	return out
}

// call calls a tool and returns what the model is told. What goes wrong is told, too:
// a model can try again, or do without.
func (u *run) call(s *step, c toolCall) string {
	tool, known := u.tools[c.Function.Name]
	if !known || !slices.Contains(s.Tools, c.Function.Name) {
		return fmt.Sprintf("error: there is no tool %q", shorten(c.Function.Name))
	}
	arguments := []byte(c.Function.Arguments)
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	if !json.Valid(arguments) || firstByte(arguments) != '{' {
		return "error: the arguments are not a JSON object"
	}
	text, err := u.post(tool, arguments)
	if err != nil {
		u.g.log.Warn("gateway: a tool failed", "request", u.x.id, "tool", tool.Name, "error", err)
		return "error: " + reason(err, tool)
	}
	return text
}

// reason says what went wrong without telling addresses.
func reason(err error, tool config.Tool) string {
	var status toolStatus
	switch {
	case errors.As(err, &status):
		return status.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("the tool did not answer in %v", tool.Timeout)
	case errors.Is(err, errToolLarge):
		return fmt.Sprintf("the tool's answer is larger than %v", tool.MaxBytes)
	}
	return "the tool could not be reached"
}

// toolStatus is an answer of a tool that says it failed.
type toolStatus struct {
	status int
	text   string
}

// Error implements error.
func (t toolStatus) Error() string { return fmt.Sprintf("the tool answered %d: %s", t.status, t.text) }

var errToolLarge = errors.New("gateway: a tool's answer is too large")

// post calls a tool. Redirects are not followed: the configuration says what is
// called. No slot is held meanwhile.
func (u *run) post(tool config.Tool, arguments []byte) (string, error) {
	ctx, cancel := context.WithTimeout(u.request.Context(), tool.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, tool.URL, bytes.NewReader(arguments))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Request-Id", u.x.id)
	r.Header["User-Agent"] = nil
	if tool.Credential != "" {
		r.Header.Set("Authorization", "Bearer "+tool.Credential.Reveal())
	}
	resp, err := u.g.tools.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, int64(tool.MaxBytes)+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > int(tool.MaxBytes):
		return "", errToolLarge
	case resp.StatusCode >= http.StatusMultipleChoices:
		return "", toolStatus{resp.StatusCode, shorten(string(text))}
	}
	return string(text), nil
}
