// Package fleettest tests what only real processes show: replicas that are
// killed, a Redis that is frozen (hung, not down), clients that close their
// sockets, a start without a store. The programs are built once, the store is
// a real redis-server, and the judge is the simulated provider, which runs in
// the test and keeps its own ledger: nothing here believes what a replica says
// about what it let through.
//
// The tests measure time, so `make test` runs them alone, after the others.
// Under the race detector the programs are built with it too, and a race in
// one of them fails the test.
package fleettest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// headway is the path of the program under test.
var headway string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "headway-fleettest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	headway = filepath.Join(dir, "headway")
	build := exec.Command("go", append(append([]string{"build"}, raceFlag...), "-o", headway, "../../cmd/headway")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %v\n%s", build, err, out)
		return 1
	}
	return m.Run()
}
