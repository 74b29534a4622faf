package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/workspace"
	"github.com/headway-limiter/headway/limiter"
)

// ownerKey is where ServeOwner leaves who asks.
type ownerKey struct{}

// Serves implements gateway.Files.
func (s *Service) Serves(path string) bool { return gateway.IsFiles(path) }

// ServeOwner implements gateway.Files.
func (s *Service) ServeOwner(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	s.api.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ownerKey{}, owner)))
}

// routes mounts the API.
func (s *Service) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request, gateway.Owner){
		"POST /v1/files":               s.keeping(s.createFile),
		"GET /v1/files":                s.listFiles,
		"GET /v1/files/{id}":           s.getFile,
		"GET /v1/files/{id}/content":   s.getContent,
		"DELETE /v1/files/{id}":        s.deleteFile,
		"POST /v1/batches":             s.keeping(s.createBatch),
		"GET /v1/batches":              s.listBatches,
		"GET /v1/batches/{id}":         s.getBatch,
		"POST /v1/batches/{id}/cancel": s.cancelBatch,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			h(w, r, r.Context().Value(ownerKey{}).(gateway.Owner))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		gateway.Complain(w, r, http.StatusNotFound, "unknown_url", fmt.Sprintf("Unknown URL: %s %s.", r.Method, shorten(r.URL.Path)))
	})
	return mux
}

// keeping refuses those whose data must not be kept.
func (s *Service) keeping(h func(http.ResponseWriter, *http.Request, gateway.Owner)) func(http.ResponseWriter, *http.Request, gateway.Owner) {
	return func(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
		switch err := s.mayKeep(owner); {
		case errors.Is(err, workspace.ErrRetention):
			gateway.Complain(w, r, http.StatusForbidden, "zero_data_retention",
				"The workspace keeps no data (zero_data_retention), so it has no files and batches.")
		case err != nil:
			gateway.Complain(w, r, http.StatusServiceUnavailable, "workspaces_unavailable",
				"It is not known yet whether the workspace keeps data. Retry soon.")
		default:
			h(w, r, owner)
		}
	}
}

// mayKeep asks whether what owner sends may be kept.
func (s *Service) mayKeep(owner gateway.Owner) error {
	if s.opts.MayKeep == nil {
		return nil
	}
	return s.opts.MayKeep(owner)
}

// refuse words an error for a caller.
func (s *Service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var t *trouble
	switch {
	case errors.As(err, &t):
		t.send(w, r)
	case errors.Is(err, limiter.ErrUnavailable), r.Context().Err() != nil:
		gateway.Complain(w, r, http.StatusServiceUnavailable, "store_unavailable", "Files and batches cannot be reached right now. Retry soon.")
	default:
		s.log.Error("batch: request failed", "path", r.URL.Path, "error", err)
		gateway.Complain(w, r, http.StatusInternalServerError, "internal_error", "Internal error.")
	}
}

// missing is the answer for what is not there, or is somebody else's.
func missing(kind, id string) *trouble {
	return &trouble{http.StatusNotFound, kind + "_not_found", fmt.Sprintf("There is no %s %q.", kind, shorten(id))}
}

// find returns a file (f) or batch (b) of owner, or answers that there is none.
func (s *Service) find(w http.ResponseWriter, r *http.Request, owner gateway.Owner, kind, id string) record {
	got, err := s.store.get(r.Context(), kind, string(owner.Tenant), id)
	if err == nil && got == nil {
		err = missing(map[string]string{"f": "file", "b": "batch"}[kind], id)
	}
	if err != nil {
		s.refuse(w, r, err)
		return nil
	}
	return got
}

func (s *Service) getFile(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	id := r.PathValue("id")
	if f := s.find(w, r, owner, "f", id); f != nil {
		answer(w, newFileObject(id, f))
	}
}

// readBytes is how much of a file one call reads.
const readBytes = 256 << 10

// getContent streams a file. Its lines do not change once it is complete; one that
// cannot be read to its end is cut off.
func (s *Service) getContent(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	id := r.PathValue("id")
	f := s.find(w, r, owner, "f", id)
	if f == nil {
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	if f["state"] == "processed" {
		w.Header().Set("Content-Length", f["bytes"])
	}
	for next := int64(0); next < f.int("lines"); {
		lines, err := s.store.lines(r.Context(), id, next, readBytes)
		if err != nil || len(lines) == 0 {
			s.log.Warn("batch: a download was cut off", "file", id, "error", err)
			panic(http.ErrAbortHandler)
		}
		if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
			return // the client left
		}
		next += int64(len(lines))
	}
}

func (s *Service) deleteFile(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	id := r.PathValue("id")
	said, err := s.store.drop(r.Context(), string(owner.Tenant), id)
	switch {
	case err != nil:
	case said == "none":
		err = missing("file", id)
	case said == "used":
		err = &trouble{http.StatusConflict, "file_in_use", "The file is the input of a batch that has not ended. Cancel that first."}
	default:
		answer(w, map[string]any{"id": id, "object": "file", "deleted": true})
		return
	}
	s.refuse(w, r, err)
}

// maxPage bounds a page of either list; longer ones are cut, and say so.
const maxPage = 1000

// pageOf reads the query of a list.
func pageOf(r *http.Request, kind string, limit, most int) (page, *trouble) {
	q := r.URL.Query()
	p := page{kind: kind, after: q.Get("after"), order: "desc", purpose: q.Get("purpose"), limit: limit}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > most {
			return p, &trouble{http.StatusBadRequest, "invalid_limit", fmt.Sprintf("The limit has to be a number from 1 to %d.", most)}
		}
		p.limit = n
	}
	p.limit = min(p.limit, maxPage)
	if q.Get("order") == "asc" {
		p.order = "asc"
	}
	return p, nil
}

func (s *Service) listFiles(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	listAs(s, w, r, owner, "f", newFileObject)
}

func (s *Service) listBatches(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	listAs(s, w, r, owner, "b", newBatchObject)
}

// listAs answers with a page. The longest limits are those of OpenAI's API.
func listAs[T any](s *Service, w http.ResponseWriter, r *http.Request, owner gateway.Owner, kind string, word func(string, record) T) {
	limit, most := 10_000, 10_000
	if kind == "b" {
		limit, most = 20, 100
	}
	p, wrong := pageOf(r, kind, limit, most)
	if wrong != nil {
		s.refuse(w, r, wrong)
		return
	}
	entries, more, ok, err := s.store.list(r.Context(), string(owner.Tenant), p)
	if err == nil && !ok {
		err = &trouble{http.StatusBadRequest, "invalid_after", fmt.Sprintf("There is no entry %q to go on from.", shorten(p.after))}
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	answer(w, newList(entries, more, word))
}

// ask is the body of a new batch.
type ask struct {
	InputFileID      string            `json:"input_file_id"`
	Endpoint         string            `json:"endpoint"`
	CompletionWindow string            `json:"completion_window"`
	Metadata         map[string]string `json:"metadata"`
}

// Bounds of a new batch's metadata, which are OpenAI's, and of its whole body.
const (
	maxPairs     = 16
	maxPairName  = 64
	maxPairValue = 512
	maxAsk       = 64 << 10
)

// maxEndpoint is longer than any path of an API, in bytes.
const maxEndpoint = 256

// isEndpoint reports whether path is a plain one of the API, which means the same to
// everybody who reads it: printable ASCII, no query, nothing escaped, no empty or dot
// segments.
func isEndpoint(path string) bool {
	plain := func(r rune) bool { return r > ' ' && r < 0x7f && !strings.ContainsRune(`?#%\`, r) }
	name, ok := strings.CutPrefix(path, "/v1/")
	return ok && name != "" && len(path) <= maxEndpoint && strings.TrimFunc(path, plain) == "" &&
		!strings.Contains(path, "//") && !strings.Contains(path, "/.")
}

// check returns what is wrong, and how long the batch may take.
func (a *ask) check(s *Service) (time.Duration, *trouble) {
	wrong := func(code, format string, args ...any) (time.Duration, *trouble) {
		return 0, &trouble{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
	}
	window, err := time.ParseDuration(a.CompletionWindow)
	switch {
	case a.InputFileID == "":
		return wrong("missing_input_file_id", "The field input_file_id is missing.")
	case err != nil || window < time.Second:
		return wrong("invalid_completion_window", "The field completion_window has to be a duration such as 24h.")
	case !isEndpoint(a.Endpoint) || s.Serves(a.Endpoint):
		return wrong("invalid_endpoint", "The field endpoint has to be a path such as /v1/chat/completions.")
	case s.opts.Routed != nil && !s.opts.Routed(a.Endpoint):
		return wrong("invalid_endpoint", "The endpoint %.100s is not routed: nothing here answers requests to it.", a.Endpoint)
	case len(a.Metadata) > maxPairs:
		return wrong("invalid_metadata", "There are more than %d pairs of metadata.", maxPairs)
	}
	for name, value := range a.Metadata {
		if len(name) > maxPairName || len(value) > maxPairValue {
			return wrong("invalid_metadata", "Metadata has names of up to %d and values of up to %d bytes.", maxPairName, maxPairValue)
		}
	}
	return min(window, s.opts.Config().DefaultDeadline), nil
}

func (s *Service) createBatch(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	var a ask
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAsk))
	if err != nil || json.Unmarshal(body, &a) != nil {
		s.refuse(w, r, &trouble{http.StatusBadRequest, "invalid_json", "The request body is not an object with input_file_id, endpoint and completion_window."})
		return
	}
	deadline, wrong := a.check(s)
	if wrong != nil {
		s.refuse(w, r, wrong)
		return
	}
	id := "batch_" + newID()
	if err := s.submit(r.Context(), owner, id, a, deadline); err != nil {
		s.refuse(w, r, err)
		return
	}
	wake(s.look)
	if b := s.find(w, r, owner, "b", id); b != nil {
		answer(w, newBatchObject(id, b))
	}
}

// submit puts a batch into the store.
func (s *Service) submit(ctx context.Context, owner gateway.Owner, id string, a ask, deadline time.Duration) error {
	c := s.opts.Config()
	metadata, _ := json.Marshal(a.Metadata) // plain text
	args := []string{
		string(owner.Tenant), id, a.InputFileID, millis(deadline), millis(c.Retention),
		strconv.FormatFloat(owner.Weight, 'g', -1, 64), number(c.MaxJobsPerTenant), number(c.MaxFilesPerTenant),
		"file-" + newID(), "file-" + newID(),
		"endpoint", a.Endpoint, "window", a.CompletionWindow, "metadata", string(metadata),
		"key", owner.Key, "user", string(owner.User), "place", owner.Place,
	}
	said, err := s.store.submit(ctx, args)
	if err != nil {
		return err
	}
	refused := func(status int, code, format string, values ...any) error {
		s.metrics.refused.WithLabelValues(code).Inc()
		return &trouble{status, code, fmt.Sprintf(format, values...)}
	}
	switch said.text(0) {
	case "ok":
		return nil
	case "none":
		return missing("file", a.InputFileID)
	case "purpose":
		return refused(http.StatusBadRequest, "invalid_purpose", "The input has to be a file whose purpose is batch.")
	case "open":
		return refused(http.StatusConflict, "file_not_ready", "The file has not arrived completely.")
	case "empty":
		return refused(http.StatusBadRequest, "empty_file", "The file has no lines.")
	case "batches":
		return refused(http.StatusTooManyRequests, "too_many_batches", "There are %d batches already, as many as one tenant may keep.", c.MaxFilesPerTenant)
	}
	return refused(http.StatusTooManyRequests, "queue_full",
		"The file has %d jobs, and %d others have no result yet: one tenant may have %d.", said.int(2), said.int(1), c.MaxJobsPerTenant)
}

func (s *Service) getBatch(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	id := r.PathValue("id")
	if b := s.find(w, r, owner, "b", id); b != nil {
		answer(w, newBatchObject(id, b))
	}
}

func (s *Service) cancelBatch(w http.ResponseWriter, r *http.Request, owner gateway.Owner) {
	id := r.PathValue("id")
	said, err := s.store.cancel(r.Context(), string(owner.Tenant), id)
	switch {
	case err != nil:
	case said.text(0) == "none":
		err = missing("batch", id)
	case said.text(0) == "ended":
		err = &trouble{http.StatusConflict, "batch_ended", fmt.Sprintf("The batch cannot be cancelled: it is %s.", said.text(1))}
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	wake(s.look)
	if b := s.find(w, r, owner, "b", id); b != nil {
		answer(w, newBatchObject(id, b))
	}
}
