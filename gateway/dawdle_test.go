package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestClientsThatSendSlowly: a body that does not come is its sender's fault. The
// agent that waits for it is as well as it was, and the sender is told.
func TestClientsThatSendSlowly(t *testing.T) {
	takes := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			ok(w, r)
		}
	}
	full := func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Second) } // longer than the total timeout
	for _, c := range []struct {
		name, connect string
		agent         http.HandlerFunc
		part          int           // bytes
		first, pause  time.Duration // in front of the first and of each other; there is no end
		says          string
		after         time.Duration
		well          bool
	}{
		{"nothing comes", "2s", takes, 1, 30 * time.Second, time.Second, "body_timeout", 11 * time.Second, true},
		{"drips until the total timeout", "30s", takes, 1, 0, 700 * time.Millisecond, "body_timeout", 10*time.Second + lastPart, true},
		{"stands still", "2s", takes, 1, 0, 30 * time.Second, "body_timeout", 6*time.Second + lastPart, true},
		{"the agent takes nothing", "30s", full, 1 << 20, 0, 0, "upstream_timeout", 10 * time.Second, false},
		{"the agent takes nothing for long enough", "2s", full, 1 << 20, 0, 0, "upstream_timeout", 6 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newThree(t, strings.NewReplacer("HEADER", "4s", "connect: 30s", "connect: "+c.connect, "idle: 30s", "idle: 3s").Replace(rushedRig),
					map[string]http.HandlerFunc{"one": c.agent})
				for range 3 { // as many as take an agent out
					body, sender := io.Pipe()
					go func() {
						time.Sleep(c.first)
						for part := make([]byte, c.part); ; time.Sleep(c.pause) {
							if _, err := sender.Write(part); err != nil {
								return
							}
						}
					}()
					req := r.request(t.Context(), "/v1/audio/transcriptions", "x", as("secret-a"))
					req.Header.Set("Content-Type", "audio/wav")
					req.Body, req.ContentLength, req.GetBody = body, -1, nil
					text, start := "", time.Now()
					resp, err := r.client.Do(req)
					if err == nil {
						data, _ := io.ReadAll(resp.Body) // of one that is cut, what there is
						text = string(data)
						resp.Body.Close()
					}
					if took := time.Since(start).Truncate(100 * time.Millisecond); err != nil || !strings.Contains(text, c.says) || took != c.after {
						t.Errorf("got %q, %v after %v, want %q after %v", text, err, took, c.says, c.after)
					}
					_ = body.Close()
					time.Sleep(time.Minute) // for the sender to notice
				}
				if well := r.agents.States()[0].Healthy; well != c.well {
					t.Errorf("the agent is well: %v, want %v", well, c.well)
				}
			})
		})
	}
}
