package consoletest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// The replicas and the browser that all tests share, and its profile.
var (
	replicas *fleet
	browser  context.Context
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	profile, err := os.MkdirTemp("", "headway-consoletest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(profile)
	if replicas, err = startFleet(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer replicas.end()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.UserDataDir(profile),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("no-pings", true),
		// Whatever has a name leads nowhere, so that a request to elsewhere is seen
		// and fails.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Do(browser); err != nil {
		fmt.Fprintln(os.Stderr, "the browser does not start:", err)
		return 1
	}
	return m.Run()
}

// tab is one page of the browser, with what it did.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu       sync.Mutex
	requests []string // addresses
	trouble  []string // errors in its console, exceptions, broken policies
	expected []string // parts of trouble that the test brings about
}

// look says how a page is looked at.
type look struct {
	width int64 // pixels
	dark  bool
}

var wide = look{width: 1280}

// visit opens a console in a tab of its own. When the test ends, nothing must have
// gone wrong in it, and nothing been asked for elsewhere.
func visit(t *testing.T, address string, l look) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	tb := &tab{t: t, ctx: ctx, url: address}
	t.Cleanup(func() {
		tb.mustBeClean()
		cancel()
		end()
	})
	if err := chromedp.Listen(ctx, tb.hear); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(l.width, 1000), chromedp.Navigate(address)); err != nil {
		t.Fatal(err)
	}
	return tb
}

// hear keeps what a tab does. It runs in the goroutine that reads the browser.
func (tb *tab) hear(event any) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		tb.requests = append(tb.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		tb.trouble = append(tb.trouble, "exception: "+e.ExceptionDetails.Text+" "+said(e.ExceptionDetails.Exception))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var words []string
			for _, a := range e.Args {
				words = append(words, said(a))
			}
			tb.trouble = append(tb.trouble, "console: "+strings.Join(words, " "))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			tb.trouble = append(tb.trouble, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	}
}

// said is a value of a page as text.
func said(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return o.Description + string(o.Value)
}

// expect excuses trouble that has text in it.
func (tb *tab) expect(text string) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	tb.expected = append(tb.expected, text)
}

// mustBeClean fails the test for requests that left this machine and for trouble.
func (tb *tab) mustBeClean() {
	tb.t.Helper()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	own, _ := url.Parse(tb.url)
	for _, address := range tb.requests {
		if u, err := url.Parse(address); err != nil || u.Host != own.Host {
			tb.t.Errorf("asked for %s, which is not at %s", address, own.Host)
		}
	}
	if len(tb.requests) == 0 {
		tb.t.Error("no request was seen: the test does not listen")
	}
next:
	for _, what := range tb.trouble {
		for _, part := range tb.expected {
			if strings.Contains(what, part) {
				continue next
			}
		}
		tb.t.Error(what)
	}
}

// eval evaluates an expression in the page, waiting for a promise.
func eval[T any](tb *tab, expression string) T {
	tb.t.Helper()
	v, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression holds in the page.
func (tb *tab) until(expression string) {
	tb.t.Helper()
	// Evaluated from outside: in the page its policy forbids to evaluate text.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !eval[bool](tb, "!!("+expression+")"); <-tick.C {
		if time.Now().After(end) {
			tb.picture("failed")
			tb.t.Fatalf("%s does not hold:\n%s", expression, eval[string](tb, "document.body.innerText"))
		}
	}
}

// press presses keys, one after the other.
func (tb *tab) press(keys ...string) {
	tb.t.Helper()
	for _, k := range keys {
		if err := chromedp.Do(tb.ctx, chromedp.KeyEvent(k)); err != nil {
			tb.t.Fatal(err)
		}
	}
}

// click clicks on what a selector finds.
func (tb *tab) click(selector string) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		tb.t.Fatalf("click %s: %v", selector, err)
	}
}

// show opens a page of the console by its name, and waits for what is live on it.
func (tb *tab) show(page string) {
	tb.t.Helper()
	tb.until(`document.querySelector("#nav:not([hidden])") && !document.querySelector("main[aria-busy]")`)
	eval[any](tb, fmt.Sprintf("location.hash = %q; null", "/"+page))
	tb.until(fmt.Sprintf("!document.getElementById(%q).hidden", page))
}

// picture keeps a picture of the window if somebody wants to look.
func (tb *tab) picture(name string) {
	dir := os.Getenv("HEADWAY_SHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		tb.t.Error(err)
	}
}

// unmarshal reads JSON that a page returned.
func unmarshal[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return v
}
