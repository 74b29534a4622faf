package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// A gateway in front of one server, with everything in this process: one
// request in five seconds and user, so the second is refused.
func Example() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"choices":[{"text":"hello"}]}`)
	}))
	defer provider.Close()

	cfg, err := config.Parse([]byte(`
keys: [{id: demo, key: demo-key, user: ann}]
upstreams: [{name: provider, url: "`+provider.URL+`"}]
routes: [{path: /v1/*, upstream: provider}]
rate_limiting: {per_user: {requests: {limit: 1, per: 5s}}}
`), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	store := memstore.New().Replica(memstore.Options{})
	defer store.Close(context.Background())
	l, err := limiter.New(cfg.Limiter(), store, fleet.Solo("example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	g, err := gateway.New(cfg, l, gateway.Options{Store: store.Health})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.CloseIdle()
	edge := httptest.NewServer(g.Handler())
	defer edge.Close()

	for range 2 {
		req, _ := http.NewRequest(http.MethodPost, edge.URL+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"hi"}`))
		req.Header.Set("Authorization", "Bearer demo-key")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var answer struct {
			Choices []struct{ Text string }
			Error   struct{ Message string }
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			fmt.Println(err)
			return
		}
		if resp.StatusCode == http.StatusOK {
			fmt.Println(resp.StatusCode, answer.Choices[0].Text)
		} else {
			fmt.Println(resp.StatusCode, "retry after", resp.Header.Get("Retry-After"), "s:", answer.Error.Message)
		}
	}
	// Output:
	// 200 hello
	// 429 retry after 5 s: Too many requests for the user limit.
}
