package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed assets
var assets embed.FS

// Base is the path that the pages stand below.
const Base = "/console/"

// policy is the Content-Security-Policy: this origin and nothing inline. Styles
// that scripts set through the object model are no inline styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is one asset as it is sent.
type file struct {
	kind   string // media type
	etag   string
	plain  []byte
	packed []byte // gzip; nil where that would be no shorter
}

// files are the assets by path below Base. They are compressed once, at the first
// request: about a hundred kilobytes.
var files = sync.OnceValue(func() map[string]file {
	all := map[string]file{}
	err := fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		all[strings.TrimPrefix(name, "assets/")] = newFile(name, plain)
		return nil
	})
	if err != nil {
		panic(err) // they are part of the program
	}
	all[""] = all["index.html"]
	return all
})

func newFile(name string, plain []byte) file {
	sum := sha256.Sum256(plain)
	f := file{kind: mediaType(path.Ext(name)), etag: hex.EncodeToString(sum[:8]), plain: plain}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level exists
	_, _ = z.Write(plain)                                      // buffers take everything
	_ = z.Close()
	if packed.Len() < len(plain) {
		f.packed = packed.Bytes()
	}
	return f
}

// mediaType does not ask the machine, which may call a script anything.
func mediaType(ext string) string {
	switch ext {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(ext)
}

// Handler serves the pages below [Base] to GET and HEAD. Browsers ask again each
// time and are told 304 as long as the file is the same, so that a new program
// never meets pages of an old one.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	f, ok := files()[strings.TrimPrefix(r.URL.Path, Base)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h, body, etag := w.Header(), f.plain, f.etag
	if f.packed != nil && acceptsGzip(r.Header.Get("Accept-Encoding")) {
		body, etag = f.packed, f.etag+"-gz"
		h.Set("Content-Encoding", "gzip")
	}
	etag = strconv.Quote(etag)
	h.Set("ETag", etag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Type", f.kind)
	Secure(h)
	if known(r.Header.Get("If-None-Match"), etag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // who has left cannot be told
	}
}

// Secure sets the headers that keep a page to itself.
func Secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// acceptsGzip reads Accept-Encoding as far as browsers write it: a name, maybe
// with a weight, of which zero means no.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.ReplaceAll(weight, " ", ""), "q="), 64)
			return weight == "" || err == nil && q > 0
		}
	}
	return false
}

// known reports whether If-None-Match names etag. Comparison is weak, as RFC 9110
// §13.1.2 demands.
func known(header, etag string) bool {
	for part := range strings.SplitSeq(header, ",") {
		part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
		if part == etag || part == "*" {
			return true
		}
	}
	return false
}
