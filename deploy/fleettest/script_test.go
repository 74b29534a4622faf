package fleettest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestUpNamesWhatIsMissing: a fleet of which some processes have ended is not started
// over those that run, and who asks for it is told which have ended.
func TestUpNamesWhatIsMissing(t *testing.T) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ") // the 20th of them is the time of its start
	dir := t.TempDir()
	record := fmt.Sprintln(os.Getpid(), strings.Fields(fields)[19])
	for _, name := range []string{"haproxy", "prometheus", "replica-1", "replica-3", "redis"} { // all of them this process
		if err := os.WriteFile(filepath.Join(dir, name+".pid"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "../fleet/fleet", "up")
	cmd.Env = append(os.Environ(), "FLEET_DIR="+dir)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "5 of 7 processes run already, but not replica-2 provider (") {
		t.Errorf("got %v, want an error that names replica-2 and provider: %s", err, out)
	}
}
