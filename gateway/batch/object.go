package batch

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/headway-limiter/headway/gateway"
)

// fileObject is a file as OpenAI's API tells it.
type fileObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"` // Unix seconds, as all times here
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"`
	Status    string `json:"status"` // uploaded, processed
}

// newFileObject words a file.
func newFileObject(id string, f record) fileObject {
	return fileObject{
		ID: id, Object: "file", Bytes: f.int("bytes"), CreatedAt: f.int("created"),
		Filename: f["name"], Purpose: f["purpose"], Status: f["state"],
	}
}

// batchObject is a batch as OpenAI's API tells it. Times that have not come are
// null.
type batchObject struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"`
	Endpoint         string            `json:"endpoint"`
	Errors           *errorList        `json:"errors"`
	InputFileID      string            `json:"input_file_id"`
	CompletionWindow string            `json:"completion_window"`
	Status           string            `json:"status"`
	OutputFileID     *string           `json:"output_file_id"`
	ErrorFileID      *string           `json:"error_file_id"`
	CreatedAt        int64             `json:"created_at"`
	InProgressAt     *int64            `json:"in_progress_at"`
	ExpiresAt        int64             `json:"expires_at"`
	FinalizingAt     *int64            `json:"finalizing_at"`
	CompletedAt      *int64            `json:"completed_at"`
	FailedAt         *int64            `json:"failed_at"`
	ExpiredAt        *int64            `json:"expired_at"`
	CancellingAt     *int64            `json:"cancelling_at"`
	CancelledAt      *int64            `json:"cancelled_at"`
	RequestCounts    requestCounts     `json:"request_counts"`
	Metadata         map[string]string `json:"metadata"`
}

// requestCounts says how many jobs there are, and how many have a result.
type requestCounts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

// errorList is what is wrong with the lines of a batch that failed.
type errorList struct {
	Object string      `json:"object"`
	Data   []lineError `json:"data"`
}

// lineError is one mistake in an input file.
type lineError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *int64  `json:"line"` // from 1; null: it is about the whole file
}

// newBatchObject words a batch. Its files are told of when it has ended: before,
// they cannot be read.
func newBatchObject(id string, b record) batchObject {
	at := func(name string) *int64 {
		if _, ok := b[name]; !ok {
			return nil
		}
		n := b.int(name)
		return &n
	}
	o := batchObject{
		ID: id, Object: "batch", Endpoint: b["endpoint"], InputFileID: b["file"], CompletionWindow: b["window"],
		Status: b["status"], CreatedAt: b.int("created"), InProgressAt: at("in_progress_at"),
		ExpiresAt: b.int("expires") / 1000, FinalizingAt: at("finalizing_at"), CompletedAt: at("completed_at"),
		FailedAt: at("failed_at"), ExpiredAt: at("expired_at"), CancellingAt: at("cancelling_at"), CancelledAt: at("cancelled_at"),
		RequestCounts: requestCounts{Completed: b.int("completed"), Failed: b.int("failed")},
	}
	if o.InProgressAt != nil { // before, nobody has read its lines
		o.RequestCounts.Total = b.int("total")
	}
	_ = json.Unmarshal([]byte(b["metadata"]), &o.Metadata)
	if list := (errorList{Object: "list"}); json.Unmarshal([]byte(b["errors"]), &list.Data) == nil {
		o.Errors = &list
	}
	if at(o.Status+"_at") != nil && o.Status != "in_progress" && o.Status != "cancelling" && o.Status != "finalizing" {
		if b.int("on") > 0 {
			out := b["out"]
			o.OutputFileID = &out
		}
		if b.int("en") > 0 {
			err := b["err"]
			o.ErrorFileID = &err
		}
	}
	return o
}

// listObject is a page of either.
type listObject[T any] struct {
	Object  string  `json:"object"`
	Data    []T     `json:"data"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
	HasMore bool    `json:"has_more"`
}

// newList words a page.
func newList[T any](entries []record, more bool, word func(id string, r record) T) listObject[T] {
	l := listObject[T]{Object: "list", Data: make([]T, 0, len(entries)), HasMore: more}
	for _, e := range entries {
		l.Data = append(l.Data, word(e["id"], e))
	}
	if n := len(entries); n > 0 {
		first, last := entries[0]["id"], entries[n-1]["id"]
		l.FirstID, l.LastID = &first, &last
	}
	return l
}

// answer sends an object.
func answer(w http.ResponseWriter, object any) {
	body, err := json.Marshal(object)
	if err != nil {
		panic(err) // plain structs of text and numbers
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	_, _ = w.Write(append(body, '\n')) // a client that left cannot be told
}

// trouble is an answer that says what is wrong.
type trouble struct {
	status        int
	code, message string
}

// Error implements error.
func (t *trouble) Error() string { return "batch: " + t.message }

// send answers with it. A bound that is reached does not pass by waiting a little,
// as SDKs would.
func (t *trouble) send(w http.ResponseWriter, r *http.Request) {
	if t.status == http.StatusTooManyRequests || t.status == http.StatusConflict {
		w.Header().Set("x-should-retry", "false")
	}
	gateway.Complain(w, r, t.status, t.code, t.message)
}
