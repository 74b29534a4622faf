package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// machine describes where a run took place.
func machine() string {
	return fmt.Sprintf("%d CPUs, %s/%s, %s", runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// ticksPerSecond is the unit of CPU times in /proc: USER_HZ, the same on every
// Linux that Go runs on.
const ticksPerSecond = 100

// cpuTimes are CPU times since some begin, in ticks.
type cpuTimes struct {
	at         time.Time
	busy, ours int64
	known      bool
}

// readCPU reads what all programs have used, and what this one, the programs it
// started, and those it started and has seen end. Not known without /proc.
func readCPU() cpuTimes {
	t := cpuTimes{at: time.Now()}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t
	}
	t.busy = busyTicks(string(stat))
	self := os.Getpid()
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		p, ok := parseStat(string(stat))
		switch {
		case !ok:
		case p.pid == self:
			t.ours += p.own + p.children
		case p.parent == self:
			t.ours += p.own
		}
	}
	t.known = t.busy > 0 && t.ours > 0
	return t
}

// busyTicks adds up the first line of /proc/stat without its idle times: user,
// nice, system, (idle, iowait,) irq, softirq, steal.
func busyTicks(stat string) (n int64) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, f := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		v, _ := strconv.ParseInt(f, 10, 64)
		n += v
	}
	return n
}

// procStat is what /proc/PID/stat says, as much of it as is needed. Times are
// in ticks; children are those that have ended.
type procStat struct {
	pid, parent   int
	own, children int64
}

// parseStat reads one such file. The name of the program, in brackets, may hold
// anything.
func parseStat(text string) (p procStat, ok bool) {
	at := strings.LastIndexByte(text, ')')
	if at < 0 {
		return p, false
	}
	f := strings.Fields(text[at+1:])
	if len(f) < 15 {
		return p, false
	}
	head, _, _ := strings.Cut(text, " ")
	p.pid, _ = strconv.Atoi(head)
	p.parent, _ = strconv.Atoi(f[1])
	for i, v := range f[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(v, 10, 64)
		if i < 2 {
			p.own += n
		} else {
			p.children += n
		}
	}
	return p, true
}

// loadBetween is what the machine did between two looks.
func loadBetween(a, b cpuTimes) bench.MachineLoad {
	span := b.at.Sub(a.at).Seconds() * ticksPerSecond
	if !a.known || !b.known || span <= 0 {
		return bench.MachineLoad{CPUs: -1, Ours: -1, Others: -1}
	}
	ours := float64(b.ours-a.ours) / span
	// Both are rounded to ticks, and read one after the other.
	others := max(float64(b.busy-a.busy)/span-ours, 0)
	return bench.MachineLoad{CPUs: float64(runtime.NumCPU()), Ours: round2(ours), Others: round2(others)}
}
