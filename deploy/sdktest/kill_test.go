package sdktest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestKilledReplicaIsHardlyNoticed kills a replica under load. Only what it was
// serving at that moment may fail: HAProxy tries a connection that cannot be
// opened elsewhere. The tests after this one meet a fleet of two.
func TestKilledReplicaIsHardlyNoticed(t *testing.T) {
	const callers, each, killAt = 4, 300, 100
	// One request of each caller, and one on a connection that HAProxy kept.
	const mayFail = 2 * callers
	var pid, since int
	text, err := os.ReadFile(filepath.Join(os.Getenv("FLEET_DIR"), "replica-3.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(text), &pid, &since); err != nil {
		t.Fatalf("replica-3.pid: %v", err)
	}
	var failed atomic.Int32
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				if caller == 0 && i == killAt {
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
						t.Errorf("kill replica-3: %v", err)
					}
				}
				if err := get(t, "/v1/models"); err != nil && failed.Add(1) > mayFail {
					t.Errorf("caller %d, request %d: %v", caller, i, err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d of %d requests failed", failed.Load(), callers*each)
}

// get sends a request that costs nothing but its way through the fleet.
func get(t *testing.T, path string) error {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, os.Getenv("HEADWAY_URL")+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer sk-local-web")
	c := http.Client{Timeout: 10 * time.Second}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", res.Status)
	}
	return nil
}
