package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// modelsPath is where callers ask which models there are.
const modelsPath = "/v1/models"

// modelObject is one model in the shape of OpenAI's API.
type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`  // always "model"
	Created int64  `json:"created"` // always 0: not known
	OwnedBy string `json:"owned_by"`
}

// modelList is all of them.
type modelList struct {
	Object string        `json:"object"` // always "list"
	Data   []modelObject `json:"data"`
}

func objectOf(model string) modelObject {
	return modelObject{ID: model, Object: "model", OwnedBy: "headway"}
}

// asksModels reports whether a request is for the models that the configuration
// knows. Where its own route leads to an upstream that takes any model, only that
// upstream can say: then it is passed on like any other.
func (x *exchange) asksModels(r *http.Request) bool {
	path := x.place.path
	if path != modelsPath && !strings.HasPrefix(path, modelsPath+"/") || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	open := func(up *upstream) bool { return len(up.Models) == 0 && x.reaches(up) }
	if rt, wrong := x.route(r); wrong == nil && slices.ContainsFunc(rt.candidates, open) {
		return false
	}
	return len(x.models()) > 0
}

// reaches reports whether a request from this place may go to up.
func (x *exchange) reaches(up *upstream) bool {
	return x.place.direct == "" || x.place.direct == up.Name
}

// models lists, sorted, what can be reached over all routes, or at the agent that a
// direct path names.
func (x *exchange) models() []string {
	var out []string
	for _, rt := range x.routes {
		for _, up := range rt.candidates {
			if up.Kind == config.KindOpenAI && x.reaches(up) {
				out = append(out, up.Models...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// serveModels answers without asking any upstream. It is a request like others to
// the limits, and uses no tokens.
func (g *Gateway) serveModels(x *exchange, r *http.Request) {
	who, ok := g.known(x, r)
	if !ok {
		return
	}
	grant := g.admit(x, r.Context(), x.admission(who, 0))
	if grant == nil {
		return
	}
	defer grant.Done(limiter.Outcome{})
	g.metrics.decide("admitted", noLimit)
	g.describe(x.Header(), grant)
	all := x.models()
	if x.place.path == modelsPath {
		list := modelList{Object: "list", Data: make([]modelObject, len(all))}
		for i, model := range all {
			list.Data[i] = objectOf(model)
		}
		x.answer(list)
		return
	}
	model := strings.TrimPrefix(x.place.path, modelsPath+"/") // ids may hold slashes
	if !slices.Contains(all, model) {
		x.fail(unknownModel(model))
		return
	}
	x.answer(objectOf(model))
}

// answer sends v as JSON. Nothing must have been sent yet.
func (x *exchange) answer(v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs of text and numbers
	}
	body = append(body, '\n')
	x.Header().Set("Content-Type", "application/json")
	x.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(http.StatusOK)
	if x.request.Method != http.MethodHead {
		_, _ = x.Write(body) // a client that left cannot be told
	}
}
