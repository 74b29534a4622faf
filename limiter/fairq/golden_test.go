package fairq

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected output of testdata/*.txt")

// TestScenarios runs the stories in testdata. A story is a list of blocks: the
// commands, a line of four dashes, and what they print. Lines that begin with #
// are for the reader. Commands:
//
//	discipline NAME [quantum=COST]     begins anew, with swrr without it
//	push TENANT [w=WEIGHT] [n=COUNT] [c=COST]   items are called TENANT1, TENANT2, …
//	weight TENANT WEIGHT
//	correct ITEM COST
//	next [n=COUNT]                     prints the items whose turn it is
//	requeue ITEM [after=DURATION]
//	remove ITEM
//	hold DURATION | hold off
//	advance DURATION
//	ahead ITEM
//	ready                              prints when Next can succeed
//	loads N
//	served                             prints the cost served so far by tenant
//	state
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newStory(Config{}).run(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("%s differs (-update rewrites it):\n%s", file, diff(string(want), got))
			}
		})
	}
}

// diff shows the first line that differs.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := 0; i < len(w) && i < len(g); i++ {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d:\n  want %s\n  got  %s", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

type story struct {
	q       *Queue[string]
	now     time.Time
	items   map[string]*Item[string]
	counts  map[string]int
	weights map[string]float64
	served  map[string]float64 // cost taken by Next, by tenant
}

func newStory(c Config) *story {
	return &story{New[string](c), epoch, map[string]*Item[string]{}, map[string]int{}, map[string]float64{}, map[string]float64{}}
}

// run executes a story and returns it with the output it has now.
func (s *story) run(t *testing.T, text string) string {
	var out bytes.Buffer
	for i, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			out.WriteByte('\n')
		}
		commands, _, hasOutput := strings.Cut(block, "\n----")
		fmt.Fprintln(&out, commands)
		var printed bytes.Buffer
		for _, line := range strings.Split(commands, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				if err := s.command(&printed, strings.Fields(line)); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
			}
		}
		if hasOutput || printed.Len() > 0 {
			fmt.Fprintf(&out, "----\n%s", printed.String())
		}
		if err := invariants(s.q); err != nil {
			t.Errorf("after %q: %v", commands, err)
		}
	}
	return out.String()
}

// args splits name=value words off a command.
func args(words []string) (plain []string, named map[string]string) {
	named = map[string]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			named[k] = v
		} else {
			plain = append(plain, w)
		}
	}
	return plain, named
}

func (s *story) command(w *bytes.Buffer, words []string) error {
	plain, named := args(words)
	count := 1
	if n, ok := named["n"]; ok {
		var err error
		if count, err = strconv.Atoi(n); err != nil {
			return err
		}
	}
	switch plain[0] {
	case "discipline":
		quantum, _ := strconv.ParseFloat(named["quantum"], 64)
		*s = *newStory(Config{Discipline: Discipline(plain[1]), Quantum: quantum})
	case "push":
		return s.push(plain[1], named, count)
	case "weight", "correct":
		return s.number(w, plain)
	case "served":
		fmt.Fprintln(w, s.served)
	case "next":
		for range count {
			if it := s.q.Next(s.now); it != nil {
				s.served[strings.TrimRight(it.Value, "0123456789")] += it.cost
				fmt.Fprint(w, it.Value, " ")
			} else {
				fmt.Fprint(w, "- ")
			}
		}
		fmt.Fprintln(w)
	case "state":
		s.q.Dump(w)
	case "loads":
		n, err := strconv.Atoi(plain[1])
		for _, l := range s.q.Loads(n) {
			fmt.Fprintf(w, "%s queued=%d weight=%g served=%g\n", l.Tenant, l.Queued, l.Weight, l.Served)
		}
		return err
	case "ready":
		at, ok := s.q.Ready(s.now)
		fmt.Fprintln(w, at.Sub(s.now), ok)
	case "hold", "advance":
		return s.time(plain[0], plain[1])
	default:
		return s.item(w, plain, named)
	}
	return nil
}

func (s *story) push(tenant string, named map[string]string, count int) error {
	cost := 1.0
	for name, to := range map[string]func(float64){
		"w": func(f float64) { s.weights[tenant] = f },
		"c": func(f float64) { cost = f },
	} {
		if text, ok := named[name]; ok {
			f, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return err
			}
			to(f)
		}
	}
	if s.weights[tenant] == 0 {
		s.weights[tenant] = 1
	}
	for range count {
		s.counts[tenant]++
		it := &Item[string]{Value: fmt.Sprint(tenant, s.counts[tenant])}
		s.items[it.Value] = it
		s.q.Push(s.now, it, tenant, s.weights[tenant], cost)
	}
	return nil
}

// number runs the commands that set a number.
func (s *story) number(w *bytes.Buffer, plain []string) error {
	f, err := strconv.ParseFloat(plain[2], 64)
	if err != nil {
		return err
	}
	if plain[0] == "weight" {
		s.weights[plain[1]] = f
		fmt.Fprintln(w, s.q.SetWeight(plain[1], f))
	} else {
		s.q.Correct(s.items[plain[1]], f)
	}
	return nil
}

func (s *story) time(command, arg string) error {
	if arg == "off" {
		s.q.Hold(time.Time{})
		return nil
	}
	d, err := time.ParseDuration(arg)
	if command == "hold" {
		s.q.Hold(s.now.Add(d))
	} else {
		s.now = s.now.Add(d)
	}
	return err
}

// item runs the commands about one item.
func (s *story) item(w *bytes.Buffer, plain []string, named map[string]string) error {
	it := s.items[plain[1]]
	if it == nil {
		return fmt.Errorf("no item %s", plain[1])
	}
	switch plain[0] {
	case "requeue":
		notBefore := time.Time{}
		if after, ok := named["after"]; ok {
			d, err := time.ParseDuration(after)
			if err != nil {
				return err
			}
			notBefore = s.now.Add(d)
		}
		s.q.Requeue(s.now, it, notBefore)
	case "remove":
		fmt.Fprintln(w, s.q.Remove(it))
	case "ahead":
		fmt.Fprintln(w, s.q.Ahead(it))
	default:
		return fmt.Errorf("no command %s", plain[0])
	}
	return nil
}
