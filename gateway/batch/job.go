package batch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/headway-limiter/headway/gateway"
)

// job is one line of a batch that this replica has claimed.
type job struct {
	batch    string
	number   int64 // of its line, from 0
	claim    int64
	backs    int64 // how often it went back before
	line     string
	endpoint string
	owner    gateway.Owner
	claimed  time.Time
	deadline time.Time // after which it does not run
	customID string
	body     json.RawMessage
}

// newJob reads a job of a claim's reply.
func newJob(r reply) *job {
	now := time.Now()
	j := &job{
		batch: r.text(0), number: r.int(1), claim: r.int(2), backs: r.int(3), line: r.text(5), endpoint: r.text(6),
		owner:   gateway.Owner{Key: r.text(7), User: limiterID(r.text(8)), Place: r.text(9)},
		claimed: now, deadline: now.Add(time.Duration(r.int(10)) * time.Millisecond),
	}
	var in inputLine
	_ = json.Unmarshal([]byte(j.line), &in) // it was checked before the batch began
	j.customID, j.body = in.CustomID, in.Body
	return j
}

// inputLine is one line of an input file.
type inputLine struct {
	CustomID string          `json:"custom_id"`
	Method   string          `json:"method"`
	URL      string          `json:"url"`
	Body     json.RawMessage `json:"body"`
}

// check returns the code of what is wrong with a line, and says it in words; empty:
// nothing.
func (in *inputLine) check(line, endpoint string) (code, message string) {
	var stream struct {
		Stream bool `json:"stream"`
	}
	switch {
	case json.Unmarshal([]byte(line), in) != nil:
		return "invalid_json_line", "This line is not an object with custom_id, method, url and body."
	case in.CustomID == "":
		return "missing_required_parameter", "The field custom_id is missing."
	case len(in.CustomID) > maxCustomID:
		return "invalid_custom_id", fmt.Sprintf("The field custom_id is longer than %d bytes.", maxCustomID)
	case in.Method != http.MethodPost:
		return "invalid_method", "The field method has to be POST."
	case in.URL != endpoint:
		return "mismatched_url", "The field url has to be the endpoint of the batch."
	case len(in.Body) == 0 || in.Body[0] != '{':
		return "missing_required_parameter", "The field body has to be an object."
	case json.Unmarshal(in.Body, &stream) != nil || stream.Stream:
		return "invalid_stream", "A job cannot stream: leave stream out of its body."
	}
	return "", ""
}

// maxCustomID bounds a custom_id, in bytes: a batch that ends early repeats all of
// them.
const maxCustomID = 512

// outputLine is one line of a file of results or errors.
type outputLine struct {
	ID       string    `json:"id"`
	CustomID string    `json:"custom_id"`
	Response *response `json:"response"`
	Error    *jobError `json:"error"`
}

// response is what the upstream, or the gateway, answered.
type response struct {
	StatusCode int             `json:"status_code"`
	RequestID  string          `json:"request_id"`
	Body       json.RawMessage `json:"body"`
}

// jobError is why there is no response.
type jobError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// resultID names a result: the same in every attempt, so that nobody can take two
// for one.
func resultID(batch string, number int64) string {
	return fmt.Sprintf("batch_req_%s_%d", batch[min(len(batch), len("batch_")):], number)
}

// failedLine words a job that got no response.
func failedLine(batch string, number int64, customID, code, message string) string {
	return text(outputLine{ID: resultID(batch, number), CustomID: customID, Error: &jobError{code, message}})
}

// tooLarge words a job whose response cannot be kept.
func (j *job) tooLarge() string {
	return failedLine(j.batch, j.number, j.customID, "response_too_large",
		fmt.Sprintf("The response is larger than %d bytes, the largest that is kept here.", gateway.MaxPerformed))
}

// answeredLine words a response. A body that is not JSON becomes a text.
func (j *job) answeredLine(p gateway.Performed) string {
	body := json.RawMessage(bytes.TrimSpace(p.Body))
	if !json.Valid(body) {
		body = json.RawMessage(text(string(p.Body)))
	}
	return text(outputLine{
		ID: resultID(j.batch, j.number), CustomID: j.customID,
		Response: &response{p.Status, p.Header.Get("X-Request-Id"), body},
	})
}

// text writes JSON on one line. What it is given is plain or valid.
func text(v any) string {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(out)
}
