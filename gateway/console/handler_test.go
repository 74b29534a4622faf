package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func get(path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

// Every file is served as it is, packed where that is asked for, and again only
// if it has changed.
func TestFilesAreServed(t *testing.T) {
	for name, f := range files() {
		w := get(Base + name)
		if w.Code != http.StatusOK || !bytes.Equal(w.Body.Bytes(), f.plain) || w.Header().Get("Content-Type") == "" {
			t.Errorf("%q: %d, %d bytes of %s", name, w.Code, w.Body.Len(), w.Header().Get("Content-Type"))
		}
		packed := get(Base+name, "Accept-Encoding", "br, gzip;q=0.5")
		if packed.Header().Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(packed.Body)
			if err != nil {
				t.Fatal(err)
			}
			if plain, err := io.ReadAll(z); err != nil || !bytes.Equal(plain, f.plain) {
				t.Errorf("%q unpacks to something else: %v", name, err)
			}
		}
		for _, seen := range []*httptest.ResponseRecorder{w, packed} {
			tag := seen.Header().Get("ETag")
			again := get(Base+name, "If-None-Match", `"other", W/`+tag, "Accept-Encoding", seen.Header().Get("Content-Encoding"))
			if again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("ETag") != tag {
				t.Errorf("%q with %s: %d, %d bytes", name, tag, again.Code, again.Body.Len())
			}
		}
		if w.Header().Get("ETag") == packed.Header().Get("ETag") && packed.Header().Get("Content-Encoding") == "gzip" {
			t.Errorf("%q: two encodings have one tag", name)
		}
	}
	for _, path := range []string{Base + "none.js", Base + "../handler.go", Base + "pages/"} {
		if w := get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// The policy forbids everything inline and everything from elsewhere, and the
// page needs neither.
func TestPagesNeedNothingElse(t *testing.T) {
	policy := get(Base).Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %q: %s", want, policy)
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("the policy allows what is unsafe: %s", policy)
	}
	total := 0
	for name, f := range files() {
		if name != "" {
			total += max(len(f.packed), 1)
		}
		text := string(f.plain)
		// The names of XML are no addresses that anybody asks.
		text = strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")
		if m := regexp.MustCompile(`(?i)https?://|url\(|@import| on[a-z]+="| style="|<style|<script>|innerHTML|eval\(`).FindString(text); m != "" {
			t.Errorf("%s has %q in it", name, m)
		}
	}
	if total > 60<<10 {
		t.Errorf("the pages are %d bytes, packed; the budget is 60 KiB", total)
	}
}
