package consoletest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/headway-limiter/headway/gateway/replica"
)

// The modules that compute have tests of their own, without a browser.
func TestScripts(t *testing.T) {
	if out, err := exec.Command("node", "--test", "console.test.mjs").CombinedOutput(); err != nil {
		t.Errorf("node --test: %v\n%s", err, out)
	}
}

// api asks an admin listener as the holder of a credential.
func api(t *testing.T, r *replica.Replica, method, path, credential, body string) (status int, doc map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.AdminURL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return resp.StatusCode, doc
}

// queueing is the setting of a workspace as the API tells it.
func queueing(t *testing.T, id string) bool {
	t.Helper()
	_, doc := api(t, replicas.closed, http.MethodGet, "/api/workspaces/"+id, adminToken, "")
	on, ok := doc["inference_queueing_enabled"].(bool)
	if !ok {
		t.Fatalf("the document of %s: %v", id, doc)
	}
	return on
}

// settle makes the workspace acme what it is at first.
func settle(t *testing.T) {
	t.Helper()
	if status, doc := api(t, replicas.open, http.MethodPatch, "/api/workspaces/acme", "", `{"name": "Acme research", "inference_queueing_enabled": true}`); status != http.StatusOK {
		t.Fatalf("PATCH: %d %v", status, doc)
	}
}

// signIn types a credential into the page that asks for one.
func (tb *tab) signIn(credential string) {
	tb.t.Helper()
	tb.until(`document.activeElement.id === "credential"`)
	if err := chromedp.Do(tb.ctx, chromedp.SendKeys(chromedp.CSS("#credential"), credential+"\r")); err != nil {
		tb.t.Fatal(err)
	}
}

// What is shown moves with the load, and what somebody holds on to stays meanwhile.
func TestLiveNumbersMoveAndNothingElseDoes(t *testing.T) {
	tb := visit(t, replicas.open.ConsoleURL(), wide)
	tb.show("overview")
	const path = `document.querySelector("#chart-decisions path").getAttribute("d")`
	tb.until(ready["overview"])
	was := eval[string](tb, path)
	tb.until(fmt.Sprintf("%s !== %q && parseFloat(document.querySelectorAll('#tiles .value')[4].textContent) > 0", path, was))

	tb.show("tenants")
	tb.until(ready["tenants"])
	eval[any](tb, `document.querySelector('[data-sort="received"] button').focus(); null`)
	tb.press("\r")
	eval[any](tb, `getSelection().selectAllChildren(document.querySelector("#tenants-rows th")); null`)
	const state = `JSON.stringify([document.activeElement.textContent, getSelection().toString(), scrollY,
		[...document.querySelectorAll("#tenants-rows tr, #tenants h2")].map((e) => e.getBoundingClientRect().top)])`
	held := eval[string](tb, state)
	const chart = `[...document.querySelectorAll("#chart-tenants path")].map((p) => p.getAttribute("d")).join()`
	for range 3 {
		was = eval[string](tb, chart)
		tb.until(fmt.Sprintf("%s !== %q", chart, was))
	}
	if now := eval[string](tb, state); now != held {
		t.Errorf("focus, selection and places were\n%s\nand after three updates\n%s", held, now)
	}
	if sorted := eval[string](tb, `document.querySelector('[data-sort="received"]').ariaSort`); sorted != "descending" {
		t.Errorf("the column that was asked for is sorted %q", sorted)
	}
}

// An owner sets the switch, by mouse and by keyboard, and it holds.
func TestOwnerFlipsTheSwitch(t *testing.T) {
	settle(t)
	tb := visit(t, replicas.closed.ConsoleURL(), wide)
	tb.expect("401") // before anybody signs in
	tb.signIn("key-of-web")
	const toggle = `[data-id=acme] [role=switch]`
	tb.until(`document.querySelector("` + toggle + `")?.ariaChecked === "true"`)
	tb.click(toggle)
	tb.until(`document.querySelector("[data-id=acme] .note").textContent.startsWith("Saved")`)
	if eval[string](tb, `document.querySelector("`+toggle+`").ariaChecked`) != "false" || queueing(t, "acme") {
		t.Error("the switch was set, and queueing is still on")
	}
	tb.until(`document.getElementById("hear").textContent.startsWith("Acme research: Saved")`)

	// Somebody else was faster. The page does not read by itself meanwhile.
	eval[any](tb, `Object.defineProperty(document, "hidden", { value: true, configurable: true }); null`)
	if status, doc := api(t, replicas.open, http.MethodPatch, "/api/workspaces/acme", "", `{"name": "Acme labs"}`); status != http.StatusOK {
		t.Fatalf("PATCH: %d %v", status, doc)
	}
	tb.click(toggle)
	tb.until(`document.querySelector("[data-id=acme] .note.bad")?.textContent.includes("somebody else")`)
	if name := eval[string](tb, `document.querySelector("[data-id=acme] h2").textContent`); name != "Acme labs" || queueing(t, "acme") {
		t.Errorf("after a stale change the page shows %q; queueing on: %v", name, queueing(t, "acme"))
	}
	eval[any](tb, `document.querySelector("`+toggle+`").focus(); null`)
	tb.press(" ")
	tb.until(`document.querySelector("[data-id=acme] .note").textContent.startsWith("Saved")`)
	if !queueing(t, "acme") {
		t.Error("the space bar did not set the switch")
	}
	if more := eval[float64](tb, `document.querySelectorAll("#workspace-cards .card").length`); more != 1 {
		t.Errorf("%v workspaces are shown to a key with a role in one", more)
	}
}

// A member reads, and the pages of operators are closed to it.
func TestMemberReadsOnly(t *testing.T) {
	settle(t)
	tb := visit(t, replicas.closed.ConsoleURL(), wide)
	tb.expect("401")
	tb.signIn("key-of-nightly")
	tb.until(`document.querySelector("[data-id=acme] .state .badge:not([hidden])")?.textContent === "On"`)
	if n := eval[float64](tb, `[...document.querySelectorAll("[role=switch]")].filter((s) => s.checkVisibility()).length`); n != 0 {
		t.Errorf("a member sees %v switches", n)
	}
	links := eval[string](tb, `[...document.querySelectorAll("#nav a")].filter((a) => a.checkVisibility()).map((a) => a.textContent).join()`)
	if links != "Workspaces" {
		t.Errorf("a member is offered %s", links)
	}
	for path, want := range map[string]int{"/api/tenants": http.StatusForbidden, "/api/events": http.StatusForbidden, "/api/workspaces/beta": http.StatusNotFound} {
		if status, doc := api(t, replicas.closed, http.MethodGet, path, "key-of-nightly", ""); status != want {
			t.Errorf("%s: %d %v, want %d", path, status, doc, want)
		}
	}
	if status, _ := api(t, replicas.closed, http.MethodPatch, "/api/workspaces/acme", "key-of-nightly", `{"inference_queueing_enabled": false}`); status != http.StatusForbidden {
		t.Errorf("a member's change: %d, want 403", status)
	}
}

// The admin token opens all pages, is kept in this tab alone, and is forgotten.
func TestSigningInAndOut(t *testing.T) {
	tb := visit(t, replicas.closed.ConsoleURL(), wide)
	tb.expect("401")
	tb.signIn("wrong")
	tb.until(`document.getElementById("signin-error").textContent.includes("admin token")`)
	eval[any](tb, `document.getElementById("credential").value = ""; null`)
	tb.signIn(adminToken)
	tb.show("overview")
	tb.until(ready["overview"])
	if kept := eval[string](tb, "JSON.stringify([sessionStorage.length, localStorage.length, document.cookie, location.href.includes('token')])"); kept != `[1,0,"",false]` {
		t.Errorf("kept in session, local storage, cookie and address: %s", kept)
	}
	tb.click("#sign")
	tb.until(`document.activeElement.id === "credential" && sessionStorage.length === 0 && document.getElementById("overview").hidden`)
}

// Everything can be reached and used with the keyboard, and shows where it is.
func TestKeyboardAlone(t *testing.T) {
	tb := visit(t, replicas.open.ConsoleURL()+"#/tenants", wide)
	tb.until(ready["tenants"])
	const here = `(() => {
		const e = document.activeElement, shown = e.type === "radio" ? e.nextElementSibling : e;
		return JSON.stringify({ what: e.textContent.trim() || e.value || e.id, seen: getComputedStyle(shown).outlineStyle !== "none" });
	})()`
	var walk []string
	for range 40 {
		tb.press("\t")
		at := unmarshal[struct {
			What string
			Seen bool
		}](t, eval[string](tb, here))
		if !at.Seen {
			t.Errorf("the focus on %q cannot be seen", at.What)
		}
		if walk = append(walk, at.What); slices.Contains(walk, "As a table") && slices.Contains(walk, "Waiting") {
			break
		}
	}
	for _, want := range []string{"Skip to content", "Overview", "Tenants", "Agents", "Workspaces", "Refusals", "Use an API key", "auto", "As a table", "Tenant", "Waiting"} {
		if !slices.ContainsFunc(walk, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("the tab key never reached %q: %q", want, walk)
		}
	}
	eval[any](tb, `document.querySelector(".skip").focus(); null`)
	tb.press("\r")
	if at := eval[string](tb, "document.activeElement.id + location.hash"); at != "main#/tenants" {
		t.Errorf("the skip link leads to %s", at)
	}
	eval[any](tb, `document.querySelector('a[href="#/refusals"]').focus(); null`)
	tb.press("\r")
	tb.until(`document.activeElement.id === "refusals-title" && document.title.startsWith("Refusals")`)
}

// The choice of a theme wins over the system's, and stays.
func TestThemeIsAChoice(t *testing.T) {
	tb := visit(t, replicas.open.ConsoleURL(), wide)
	const ground = `getComputedStyle(document.body).backgroundColor`
	tb.show("agents")
	light := eval[string](tb, ground)
	eval[any](tb, `document.querySelector('#theme [value="dark"]').click(); null`)
	dark := eval[string](tb, ground)
	if light == dark {
		t.Errorf("both themes have the background %s", light)
	}
	if err := chromedp.Do(tb.ctx, chromedp.Navigate(tb.url+"?again")); err != nil {
		t.Fatal(err)
	}
	tb.until(fmt.Sprintf(`%s === %q && document.querySelector('#theme [value="dark"]').checked`, ground, dark))
}

// A connection that is lost is said to be, and comes back by itself.
func TestLostConnection(t *testing.T) {
	target, err := url.Parse(replicas.open.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	var cut atomic.Bool
	through := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cut.Load() {
			panic(http.ErrAbortHandler)
		}
		through.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	tb := visit(t, front.URL+"/console/", wide)
	t.Cleanup(front.CloseClientConnections) // its stream has no end
	tb.show("overview")
	tb.until(ready["overview"])
	tb.expect("net::ERR")
	cut.Store(true)
	front.CloseClientConnections()
	tb.until(`!document.getElementById("banner").hidden && document.getElementById("banner").textContent.includes("What you see is of")`)
	tb.picture("lost")
	cut.Store(false)
	tb.until(`document.getElementById("banner").hidden && document.getElementById("link-text").textContent === "Live"`)
}
