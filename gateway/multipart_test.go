package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// formOf writes a form: a field for name=value, a file of n bytes for n.
func formOf(t *testing.T, parts ...any) (kind string, body []byte) {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			name, value, _ := strings.Cut(p, "=")
			if err := w.WriteField(name, value); err != nil {
				t.Fatal(err)
			}
		case int:
			f, err := w.CreateFormFile("file", "speech.wav")
			if err != nil {
				t.Fatal(err)
			}
			// The data holds everything that a delimiter begins with.
			if _, err := f.Write(bytes.Repeat([]byte("\r\n--\r\r\n-model\r\n\r\n"), p/10+1)[:p]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), buf.Bytes()
}

// TestFormScanner cuts forms at every place.
func TestFormScanner(t *testing.T) {
	for _, c := range []struct {
		parts []any
		model string
		bad   bool
	}{
		{[]any{"model=whisper-1", 100}, "whisper-1", false},
		{[]any{200, "language=en", "model=whisper-1"}, "whisper-1", false},
		{[]any{"prompt=model", 50, "model="}, "", false},
		{[]any{50}, "", false},
		{[]any{"model=a", "model=a"}, "a", false},
		{[]any{"model=a", "model=b"}, "b", true},
		{[]any{"model=" + strings.Repeat("x", 300)}, strings.Repeat("x", 260), true},
		{[]any{"models=a", "Model=b"}, "", false},
	} {
		kind, body := formOf(t, c.parts...)
		for cut := range len(body) {
			s := newFormScanner(http.Header{"Content-Type": {kind}})
			s.scan(body[:cut])
			s.scan(body[cut:])
			if s.bad != c.bad || !c.bad && s.model != c.model || s.state != formEnded || !s.begun {
				t.Fatalf("%v cut at %d: model %q, bad %v, state %d", c.parts, cut, s.model, s.bad, s.state)
			}
		}
	}
	for body, want := range map[string]bool{"--b\n\nx\n--b--": true, "": false, "--b\r\nX: y\r\n\r\nz\r\n--b--\r\n": false} {
		s := newFormScanner(http.Header{"Content-Type": {"multipart/form-data; boundary=b"}})
		if s.scan([]byte(body)); s.bad != want {
			t.Errorf("%q is bad: %v", body, s.bad)
		}
	}
}

// FuzzFormScanner: in which pieces a form comes makes no difference, and what the
// standard library reads as the model is found or called bad.
func FuzzFormScanner(f *testing.F) {
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b--\r\n"), 7)
	f.Add([]byte("--b\r\ncontent-disposition: form-data; name=model\r\n\r\nm\r\n--b \r\n\r\n\r\n--b--"), 3)
	f.Fuzz(func(t *testing.T, body []byte, cut int) {
		h := http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}
		s, whole := newFormScanner(h), newFormScanner(h)
		cut = min(max(cut, 0), len(body))
		s.scan(body[:cut])
		s.scan(body[cut:])
		if whole.scan(body); whole.model != s.model || whole.bad != s.bad {
			t.Fatalf("cut at %d: %q, %v; whole: %q, %v", cut, s.model, s.bad, whole.model, whole.bad)
		}
		agrees(t, s, body)
	})
}

// TestHiddenModels: forms in which a parser that is used by upstreams finds a model,
// however it is written, do not pass for ones without.
func TestHiddenModels(t *testing.T) {
	const (
		head  = "Content-Disposition: form-data; name=\"model\""
		other = "Content-Disposition: form-data; name=\"language\"\r\n\r\nen"
		end   = "\r\n--b--\r\n"
	)
	field := func(head string) string { return "--b\r\n" + head + "\r\n\r\nm" + end }
	for name, c := range map[string]struct {
		body string
		bad  bool
	}{
		"plain":                     {field(head), false},
		"blanks behind a delimiter": {strings.Replace(field(head), "--b\r\n", "--b \t\r\n", 1), false},
		"an empty line first":       {"\r\n" + field(head), false},
		"other headers":             {field("X-A: 1\r\n" + head + "\r\nContent-Type: text/plain"), false},
		"no data before it":         {"--b\r\nX-A: 1\r\n\r\n" + field(head), false},
		"folded":                    {field("Content-Disposition: form-data;\r\n name=\"model\""), true},
		"folded by a tab":           {field("Content-Disposition: form-data;\r\n\tname=\"model\""), true},
		"a long header":             {field("X-Pad: " + strings.Repeat("a", maxPartHeader) + "\r\n" + head), true},
		"a blank before the colon":  {field("Content-Disposition : form-data; name=\"model\""), true},
		"a name twice":              {field(head + "; name=\"other\""), true},
		"unparsable":                {field("Content-Disposition: form-data; name=mo del"), true},
		"two dispositions":          {field("Content-Disposition: form-data; name=\"x\"\r\n" + head), true},
		"encoded":                   {field(head + "\r\nContent-Transfer-Encoding: quoted-printable"), true},
		"a line without a colon":    {field("x\r\n" + head), true},
		"bare LF in a header":       {field("X-A: 1\n" + head), true},
		"bare LF behind a header":   {"--b\r\n" + head + "\n\nm" + end, true},
		"bare CR in a header":       {field("X-A: 1\r" + head), true},
		"text in front":             {"x\n" + field(head), true},
		"an end that is none":       {"--b--x\r\n" + field(head), true},
		"a delimiter that is none":  {"--b\r\n" + other + "\r\n--bx\r\nX-A: 1\r\n" + field(head), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFormScanner(http.Header{"Content-Type": {"multipart/form-data; boundary=b"}})
			s.scan([]byte(c.body))
			if s.bad != c.bad || !c.bad && (s.model != "m" || !s.begun) {
				t.Errorf("model %q, bad %v, begun %v of %q", s.model, s.bad, s.begun, c.body)
			}
			agrees(t, s, []byte(c.body))
		})
	}
}

// agrees fails if the standard library reads another model of a form than a scanner
// that has not called it bad. An upstream that reads so and refuses the form does no
// work.
func agrees(t *testing.T, s *formScanner, body []byte) {
	t.Helper()
	if s.bad || !s.begun {
		return
	}
	form, err := multipart.NewReader(bytes.NewReader(body), "b").ReadForm(1 << 20)
	if err != nil {
		return
	}
	for _, named := range form.Value["model"] {
		if named != "" && s.model != named {
			t.Fatalf("found %q in %q, the library %q", s.model, body, named)
		}
	}
}

// TestFormScannerAgrees puts forms together at random from what parsers trip over.
func TestFormScannerAgrees(t *testing.T) {
	pieces := []string{
		"--b", "--b--", "\r\n", "\r\n", "\n", "\r", " ", "\t", ":", "-", "x", "m", ";", "X: y", "--b\r\n", "\r\n--b\r\n", "\r\n--b--\r\n", "\r\n\r\n",
		"Content-Disposition: form-data; name=\"model\"", "Content-Disposition: form-data; name=x", "Content-Disposition:", "form-data;", "name=model",
		"content-disposition: form-data; name=model\r\n\r\nm", "; filename=f", "; name*=utf-8''model", "Content-Transfer-Encoding: quoted-printable",
	}
	for seed := range uint64(30_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		body := []byte("--b\r\n")[:5*random.IntN(2)]
		for range random.IntN(16) {
			body = append(body, pieces[random.IntN(len(pieces))]...)
		}
		// Of what comes last, something is to be read.
		body = append(body, "\r\n--b\r\nContent-Disposition: form-data; name=y\r\n\r\nz\r\n--b--\r\n"...)
		s := newFormScanner(http.Header{"Content-Type": {"multipart/form-data; boundary=b"}})
		s.scan(body)
		agrees(t, s, body)
	}
}

// formRequest posts a form whose body is as given.
func (r *rig) formRequest(ctx context.Context, path, kind string, body io.Reader, length int64) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway.test"+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.ContentLength = length
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer secret-a")
	return req
}

const audioRig = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: ears, url: "http://ears.test", models: [whisper-1]}]
routes: [{path: /v1/*, upstream: ears}]
rate_limiting:
  per_user: {tokens: {limit: 1000000, per: 100000h}}
  per_model: {requests: {limit: 100, per: 100000h}}
`

// TestFormsAreStreamed: bytes, model and cost of a form, wherever the model stands.
func TestFormsAreStreamed(t *testing.T) {
	const large = 300 << 10
	for _, c := range []struct {
		name    string
		parts   []any
		chunked bool
		status  int
		spent   int64 // tokens
		counted int64 // requests of the model
	}{
		{"the model first", []any{"model=whisper-1", large}, false, 200, 300, 1},
		{"the model behind a small file", []any{1000, "model=whisper-1"}, false, 200, 100, 1},
		{"the model behind a large file", []any{large, "model=whisper-1"}, false, 200, 300, 0},
		{"chunked", []any{"model=whisper-1", large}, true, 200, 100, 1},
		{"no model", []any{large}, false, 200, 300, 0},
		{"another model first", []any{"model=other", large}, false, 404, 0, 0},
		{"another model last", []any{large, "model=other"}, false, 404, 300, 0},
		{"two models", []any{"model=whisper-1", 10, "model=other"}, false, 400, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []byte
				var length int64
				var broke error
				r := rigOf(t, audioRig, func(w http.ResponseWriter, req *http.Request) {
					length = req.ContentLength
					got, broke = io.ReadAll(req.Body)
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"text":"hi","usage":{"type":"duration","seconds":1}}`)
				})
				kind, body := formOf(t, c.parts...)
				size := int64(len(body))
				if c.chunked {
					size = -1
				}
				resp, text := r.send(r.formRequest(t.Context(), "/v1/audio/transcriptions", kind, io.MultiReader(bytes.NewReader(body)), size))
				time.Sleep(time.Second) // net/http lingers where it has not read everything
				if resp.StatusCode != c.status {
					t.Fatalf("status %d: %s", resp.StatusCode, text)
				}
				if c.status == http.StatusOK && (!bytes.Equal(got, body) || length != size) {
					t.Errorf("the upstream got %d bytes of %d, announced as %d", len(got), len(body), length)
				}
				if c.status != http.StatusOK && got != nil && broke == nil {
					t.Error("the upstream took the form for a whole one")
				}
				if n := 1_000_000 - r.left(limiter.User, limiter.Tokens, "ann", 1_000_000); n != c.spent {
					t.Errorf("%d tokens were spent, want %d", n, c.spent)
				}
				if n := 100 - r.left(limiter.Model, limiter.Requests, "whisper-1", 100); n != c.counted {
					t.Errorf("%d requests were counted for the model, want %d", n, c.counted)
				}
			})
		})
	}
}

// TestFormUsage: an answer that tells tokens settles the estimate.
func TestFormUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOf(t, audioRig, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"text":"hi","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"audio_tokens":14},"output_tokens":45,"total_tokens":59}}`)
		})
		kind, body := formOf(t, "model=whisper-1", 1000)
		r.send(r.formRequest(t.Context(), "/v1/audio/transcriptions", kind, bytes.NewReader(body), int64(len(body))))
		if n := 1_000_000 - r.left(limiter.User, limiter.Tokens, "ann", 1_000_000); n != 59 {
			t.Errorf("%d tokens were spent, want 59", n)
		}
	})
}

// counted counts what is read of it.
type counted struct {
	io.Reader
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p[:min(len(p), 1024)])
	c.n.Add(int64(n))
	return n, err
}

// TestAWaitingFormIsNotRead: of a request in the wait line no more is read than it
// takes to find the model, or the look-ahead.
func TestAWaitingFormIsNotRead(t *testing.T) {
	for name, parts := range map[string][]any{"model first": {"model=whisper-1", 4 << 20}, "file first": {4 << 20, "model=whisper-1"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rigOf(t, strings.Replace(audioRig, "per_user: {", "per_user: {requests: {limit: 1, per: 3s}, ", 1)+
					"  fair_queuing: {enabled: true, fairness_scope: replica}\n", func(w http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(io.Discard, req.Body)
				})
				r.must(http.StatusOK, "/v1/embeddings", `{"model":"whisper-1"}`, as("secret-a"))
				kind, body := formOf(t, parts...)
				in := &counted{Reader: bytes.NewReader(body)}
				start := time.Now()
				done := make(chan int)
				go func() {
					resp, err := r.client.Do(r.formRequest(t.Context(), "/v1/audio/translations", kind, in, int64(len(body))))
					if err != nil {
						t.Error(err)
						close(done)
						return
					}
					resp.Body.Close()
					done <- resp.StatusCode
				}()
				synctest.Wait()
				// What the client and the two ends of the connection buffer comes on top.
				if most := lookAhead + 64<<10; in.n.Load() > int64(most) {
					t.Errorf("%d bytes were read while it waits", in.n.Load())
				}
				if status := <-done; status != http.StatusOK || in.n.Load() != int64(len(body)) {
					t.Errorf("answered %d after %d of %d bytes", status, in.n.Load(), len(body))
				}
				if waited := time.Since(start); waited < 2*time.Second {
					t.Errorf("it waited %v only", waited)
				}
			})
		})
	}
}

// TestASlowFormIsBounded: a client that stops sending is answered when its time is up,
// before the model is known and after.
func TestASlowFormIsBounded(t *testing.T) {
	for name, sent := range map[string]int{"in the header": 20, "in the file": 100 << 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rigOf(t, audioRig+"server: {timeouts: {total: 5s}}\n", func(_ http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(io.Discard, req.Body)
				})
				kind, body := formOf(t, "model=whisper-1", 200<<10)
				in, out := io.Pipe()
				defer out.CloseWithError(errors.New("over"))
				go func() { _, _ = out.Write(body[:sent]) }()
				start := time.Now()
				resp, text := r.send(r.formRequest(t.Context(), "/v1/audio/transcriptions", kind, in, int64(len(body))))
				if resp.StatusCode != http.StatusRequestTimeout && resp.StatusCode != http.StatusGatewayTimeout {
					t.Errorf("answered %d: %s", resp.StatusCode, text)
				}
				if took := time.Since(start); took > 7*time.Second {
					t.Errorf("it took %v", took)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// TestShapesOfCost: what else there is to pay for, by its path.
func TestShapesOfCost(t *testing.T) {
	for _, c := range []struct {
		path, body, answer string
		spent              int64
	}{
		{"/v1/rerank", `{"model":"whisper-1","query":"12345678","documents":["1234","5678",{"text":"9012"}]}`, `{"results":[]}`, 5},
		{"/v1/rerank", `{"model":"whisper-1","query":"1234","documents":[]}`, `{"results":[],"meta":{"tokens":{"input_tokens":40,"output_tokens":2}}}`, 42},
		{"/v1/score", `{"model":"whisper-1","text_1":"1234","text_2":["5678","9012"]}`, `{"data":[]}`, 3},
		{"/v1/score", `{"model":"whisper-1","text_1":"1234","text_2":"x"}`, `{"data":[],"usage":{"prompt_tokens":17,"total_tokens":17}}`, 17},
		{"/v1/embeddings", `{"model":"whisper-1","input":["1234","5678"]}`, `{"data":[]}`, 2},
		{"/v1/audio/speech", `{"model":"whisper-1","input":"12345678","voice":"alloy"}`, `{}`, 2},
		{"/v1/responses", `{"model":"whisper-1","input":"1234","max_output_tokens":50}`, `{"usage":{"input_tokens":3,"output_tokens":4,"total_tokens":7}}`, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := rigOf(t, audioRig, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, c.answer)
			})
			r.must(http.StatusOK, c.path, c.body, as("secret-a"))
			if n := 1_000_000 - r.left(limiter.User, limiter.Tokens, "ann", 1_000_000); n != c.spent {
				t.Errorf("%s %s: %d tokens were spent, want %d", c.path, c.body, n, c.spent)
			}
		})
	}
}
