package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// adminEdge mounts the operators' pages. /livez and the bare verdict of
// /readyz are open to load balancers; the rest asks for the token, or
// where there is none keeps other sites' pages out.
func (g *Gateway) adminEdge() http.Handler {
	e := g.newEcho()
	page := func(path string, h http.Handler) {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, echo.WrapHandler(h))
	}
	page("/livez", http.HandlerFunc(g.live))
	page("/readyz", http.HandlerFunc(g.ready))
	page("/debug/headway", g.guarded(http.HandlerFunc(g.debug)))
	e.POST("/api/explain", echo.WrapHandler(g.operators(g.explainPage)))
	e.GET("/debug/pprof/*", echo.WrapHandler(g.guarded(http.HandlerFunc(g.profile))))
	g.consoleEdge(e)
	for _, path := range []string{"/api/workspaces", "/api/workspaces/*", "/api/projects/*"} {
		e.Any(path, echo.WrapHandler(http.HandlerFunc(g.adminDocuments)))
	}
	e.POST("/-/reload", echo.WrapHandler(g.guarded(http.HandlerFunc(g.reload))))
	if g.opts.Gatherer != nil {
		page("/metrics", g.guarded(promhttp.HandlerFor(g.opts.Gatherer, promhttp.HandlerOpts{
			EnableOpenMetrics: true, ErrorLog: promLog{g.log},
		})))
	}
	return g.ours(e)
}

// crossSite tells requests that another site's page makes a browser send.
var crossSite = http.NewCrossOriginProtection()

// ours keeps the pages of other sites out where no token does: a name that was made
// to lead here, and what a form elsewhere sends. Probes come under any name, and so
// does Prometheus, which asks under that of its target.
func (g *Gateway) ours(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := r.URL.Path == "/livez" || r.URL.Path == "/readyz" || r.URL.Path == "/metrics"
		if !open && g.tables.Load().cfg.Server.AdminToken.Reveal() == "" {
			if f := foreign(r); f != nil {
				f.refuseVisitor(w, r)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// foreign refuses requests that come under some name, for a page elsewhere can make
// its own name lead here and would then be taken for one of ours, and those that
// change something and come from another site.
func foreign(r *http.Request) *failure {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host = strings.Trim(host, "[]"); host != "localhost" && net.ParseIP(host) == nil {
		return &failure{status: http.StatusForbidden, kind: kindInvalid, code: "foreign_host",
			message: fmt.Sprintf("Without an admin token this is served under addresses and localhost only, not as %s.", shorten(host))}
	}
	if crossSite.Check(r) != nil {
		return &failure{status: http.StatusForbidden, kind: kindInvalid, code: "cross_site",
			message: "Without an admin token nothing is changed from another site's page."}
	}
	return nil
}

// authorized compares digests, so that neither content nor length of the token
// can be measured.
func (g *Gateway) authorized(r *http.Request) bool {
	want := g.tables.Load().cfg.Server.AdminToken.Reveal()
	if want == "" {
		return true
	}
	got, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// guarded lets only holders of the admin token pass.
func (g *Gateway) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.authorized(r) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", "Bearer")
		failure{status: http.StatusUnauthorized, kind: kindInvalid, code: "invalid_admin_token",
			message: "The admin token is missing or wrong."}.write(w, r)
	})
}

// live answers as long as the process can answer at all. Whatever is wrong
// outside of it, a restart would not help.
func (g *Gateway) live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// ready answers load balancers, which look at the status alone, and operators,
// who see the reasons if they have the token.
func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) {
	state := g.readiness()
	var body any = state
	if !g.authorized(r) {
		body = struct {
			Ready bool `json:"ready"`
		}{state.Ready}
	}
	w.Header().Set("Content-Type", "application/json")
	if !state.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(body) // a probe that left cannot be told
}

// debug writes the live state as text for people. Identities are hashes: who
// knows a name can find it here, who does not learns none.
func (g *Gateway) debug(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	health := g.opts.Store()
	fmt.Fprintf(w, "headway %s\nserving %d, draining %v\nstore %s, usable %v\n",
		g.opts.Build, g.Running(), g.draining.Load(), health.State, health.Usable)
	if g.opts.Fleet != nil {
		v := g.opts.Fleet.View()
		fmt.Fprintf(w, "fleet of %d seen by %s, fresh %v, oldest news %v\n", v.Members, v.Self, v.Fresh, v.Age)
		for _, d := range v.Replicas {
			fmt.Fprintf(w, "  %s in flight %d, build %s, config %s\n", d.Replica, d.InFlight, d.Build, d.Config)
			for _, p := range d.Pools {
				fmt.Fprintf(w, "    %s waiting %d, spacing %v\n", p.Name, p.Depth, p.Spacing)
			}
		}
	}
	g.limiter.Dump(w)
}

// profile serves what Go measures of this process, where the configuration says
// so: profiles take time, and heap profiles can stop the process for a while.
func (g *Gateway) profile(w http.ResponseWriter, r *http.Request) {
	if !g.tables.Load().cfg.Server.Pprof {
		failure{status: http.StatusNotFound, kind: kindInvalid, code: "unknown_url",
			message: "Profiles are off; set server.pprof: true."}.write(w, r)
		return
	}
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	default: // the list, and every profile by its name
		pprof.Index(w, r)
	}
}

// promLog passes errors of a scrape to the log.
type promLog struct {
	log interface{ Error(msg string, args ...any) }
}

// Println implements promhttp.Logger.
func (l promLog) Println(v ...any) { l.log.Error("gateway: metrics", "error", fmt.Sprint(v...)) }
