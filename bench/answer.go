package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Kind is how a request ended.
type Kind uint8

// All kinds.
const (
	Admitted Kind = iota // answered 2xx to the last byte
	Refused              // 429 or 503
	Failed               // any other status, no answer, or half of one
	Aborted              // cut off by the driver's own end
	Dropped              // never sent: too many were outstanding
)

// result is one request's end. The fields are those of Event.
type result struct {
	kind   Kind
	reason string
	wait   time.Duration
	told   time.Duration
	fleet  bool

	target   int
	late     time.Duration
	degraded string
}

// What a replica tells a request that stood in line, and one that was decided
// without the store.
const (
	headerEstimate = "X-Fair-Queue-Estimated-Wait-Ms"
	headerScope    = "X-Fair-Queue-Scope"
	headerDegraded = "X-Headway-Degraded"
)

// maxRefusalBody is how much of a refusal is read.
const maxRefusalBody = 8 << 10

// send makes one request and sees it through to its last byte.
func (d *Driver) send(ctx context.Context, t *tenant, data []byte, target int, intended time.Time) result {
	req := (&http.Request{
		Method: http.MethodPost, URL: t.targets[target], Host: t.targets[target].Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		// Transports may not change a header, so all requests share it.
		Header: t.header, Body: io.NopCloser(bytes.NewReader(data)), ContentLength: int64(len(data)),
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
	}).WithContext(ctx)
	resp, err := d.cfg.Transport.RoundTrip(req)
	if err != nil {
		return result{kind: Failed, reason: failure(ctx)}
	}
	defer resp.Body.Close()
	wait := max(time.Since(intended)-serviceTime(resp.Header), 0)
	degraded := resp.Header.Get(headerDegraded)
	switch {
	case resp.StatusCode/100 == 2:
		if !readAnswer(resp.Body, t.load.Stream) {
			return result{kind: Failed, reason: "cut"}
		}
		return result{kind: Admitted, wait: wait, told: foretold(resp.Header), fleet: resp.Header.Get(headerScope) == "fleet", degraded: degraded}
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		return result{kind: Refused, reason: refusalReason(resp), wait: wait, told: -1, degraded: degraded}
	}
	io.Copy(io.Discard, io.LimitReader(resp.Body, maxRefusalBody)) // so that the connection can be used again
	return result{kind: Failed, reason: fmt.Sprintf("status_%d", resp.StatusCode)}
}

// failure names why there was no answer, coarsely: error texts hold addresses.
func failure(ctx context.Context) string {
	if ctx.Err() == context.DeadlineExceeded {
		return "timeout"
	}
	return "connection"
}

// serviceTime is what the provider says it took; 0 when it does not say.
func serviceTime(h http.Header) time.Duration {
	ms, err := strconv.ParseFloat(h.Get(HeaderServiceTime), 64)
	if err != nil || !(ms >= 0 && ms < 1e9) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// foretold is the wait that the answer says was expected, < 0 when it says
// nothing.
func foretold(h http.Header) time.Duration {
	ms, err := strconv.ParseInt(h.Get(headerEstimate), 10, 64)
	if err != nil {
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// refusalReason reads the reason out of an error body, as exactly as it is
// given: the limiter's reason, else the error's code, else the status.
func refusalReason(resp *http.Response) string {
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Details struct {
				Reason string `json:"reason"`
			} `json:"details"`
		} `json:"error"`
	}
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBody))
	if json.Unmarshal(data, &body) == nil {
		for _, reason := range [...]string{body.Error.Details.Reason, body.Error.Code} {
			if reason != "" {
				return reason
			}
		}
	}
	return fmt.Sprintf("status_%d", resp.StatusCode)
}

// buffers are reused: at hundreds of requests a second, fresh ones would be
// most of what the driver allocates.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// streamEnd is the last event of a complete stream.
var streamEnd = []byte("data: [DONE]\n\n")

// readAnswer reads to the end and reports whether the answer is complete: all
// of its bytes came, and a stream's last event was its end.
func readAnswer(body io.Reader, stream bool) bool {
	buf := buffers.Get().(*[4096]byte)
	defer buffers.Put(buf)
	keep := 0 // bytes at the front of buf that may begin streamEnd
	for {
		n, err := body.Read(buf[keep:])
		n += keep
		tail := buf[max(0, n-len(streamEnd)):n]
		if err == io.EOF {
			return !stream || bytes.Equal(tail, streamEnd)
		}
		if err != nil {
			return false
		}
		keep = copy(buf[:], tail)
	}
}
