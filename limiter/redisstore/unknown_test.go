package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter/redisstore"
)

// TestUnknownServersAreToldOnce: a store whose servers nobody names says so when it
// starts, with addresses and causes, and then no more.
func TestUnknownServersAreToldOnce(t *testing.T) {
	for _, mode := range []redisstore.Mode{redisstore.ModeSentinel, redisstore.ModeCluster} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			var dials atomic.Int64
			o := redisstore.Options{
				Mode: mode, Addresses: []string{"10.0.0.1:26379", "10.0.0.2:26379"}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				DialCtxFn: func(context.Context, string) (net.Conn, error) {
					dials.Add(1)
					return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
				},
			}
			if mode == redisstore.ModeSentinel {
				o.SentinelMaster = "mymaster"
			}
			s, err := redisstore.New(o)
			if err != nil {
				t.Fatal(err)
			}
			told := log.String()
			for _, want := range []string{"level=WARN", "store servers unknown", "mode=" + string(mode), "10.0.0.1:26379", "10.0.0.2:26379", "connection refused"} {
				if !strings.Contains(told, want) {
					t.Errorf("%s: the log at the start lacks %q: %s", mode, want, told)
				}
			}
			before := dials.Load()
			time.Sleep(10 * time.Second)
			if dials.Load() == before {
				t.Errorf("%s: nobody was asked again", mode)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := s.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "unknown"); n != 1 {
				t.Errorf("%s: told %d times, want once: %s", mode, n, log.String())
			}
		})
	}
}
