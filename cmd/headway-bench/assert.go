package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-limiter/headway/bench"
)

// writer writes a report.
type writer = func(io.Writer) error

// scoped is a report, and the name that assertions have for it.
type scoped struct {
	scope  string
	report any // written as a JSON object
}

// assertion is what a number of the report must be.
type assertion struct {
	text       string
	scope, key string
	most       bool // else least
	bound      float64
}

// parseAssertion reads "SCOPE.KEY>=NUMBER" or "SCOPE.KEY<=NUMBER".
func parseAssertion(text string) (a assertion, err error) {
	a.text = text
	what, bound, least := strings.Cut(text, ">=")
	if !least {
		what, bound, a.most = strings.Cut(text, "<=")
	}
	var dotted bool
	a.scope, a.key, dotted = strings.Cut(what, ".")
	a.bound, err = strconv.ParseFloat(bound, 64)
	if err != nil || !dotted || !least && !a.most {
		return a, fmt.Errorf("--assert %q is not like exact.jain>=0.99", text)
	}
	return a, nil
}

// assertable reads every assertion and finds those that no run could meet: of a scope
// that will not be run, or of a number that report, an empty one of its kind, does not
// have. The error names every mistake.
func (f *fairnessFlags) assertable(scopes []string, report any) error {
	var errs []error
	numbers, err := numbersOf(report)
	if err != nil {
		return err
	}
	keys := slices.Sorted(maps.Keys(numbers))
	for _, text := range f.asserts {
		a, err := parseAssertion(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !slices.Contains(scopes, a.scope) {
			errs = append(errs, fmt.Errorf("--assert %s: scope %q is not run; there is %s", text, a.scope, strings.Join(scopes, ", ")))
		}
		if !slices.Contains(keys, a.key) {
			errs = append(errs, fmt.Errorf("--assert %s: the report has no number %q; there is %s", text, a.key, strings.Join(near(a.key, keys), ", ")))
		}
	}
	return errors.Join(errs...)
}

// near are the names that share the longest begin with what was typed; all, if none
// shares its first letter.
func near(typed string, names []string) (out []string) {
	for n := len(typed); n >= 0 && out == nil; n-- {
		for _, name := range names {
			if strings.HasPrefix(name, typed[:n]) {
				out = append(out, name)
			}
		}
	}
	return out
}

// numbersOf are the numbers of a report by their JSON keys. Those that it says it did
// not measure are NaN, of which nothing holds.
func numbersOf(report any) (map[string]float64, error) {
	data, err := json.Marshal(report)
	if err != nil {
		return nil, err
	}
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	numbers := map[string]float64{}
	for key, v := range members {
		if n, ok := v.(float64); ok {
			numbers[key] = n
		}
	}
	missing, _ := members["not_measured"].([]any)
	for _, key := range missing {
		if name, ok := key.(string); ok {
			if _, ok := numbers[name]; ok {
				numbers[name] = math.NaN()
			}
		}
	}
	return numbers, nil
}

// check holds the runs against all assertions.
func (f *fairnessFlags) check(runs bench.Comparison) error {
	var all []scoped
	for _, r := range runs {
		all = append(all, scoped{r.Scope, r})
	}
	return f.hold(all)
}

// hold holds reports against all assertions.
func (f *fairnessFlags) hold(all []scoped) error {
	var errs []error
	for _, text := range f.asserts {
		a, err := parseAssertion(text)
		if err == nil {
			err = a.check(all)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// check holds every report of the assertion's scope against it.
func (a assertion) check(all []scoped) error {
	known := false
	for _, r := range all {
		if r.scope != a.scope {
			continue
		}
		known = true
		numbers, err := numbersOf(r.report)
		if err != nil {
			return err
		}
		v, ok := numbers[a.key]
		switch {
		case !ok:
			return fmt.Errorf("--assert %s: the report has no number %s", a.text, a.key)
		case math.IsNaN(v):
			return fmt.Errorf("--assert %s does not hold: it was not measured", a.text)
		case a.most && v > a.bound || !a.most && v < a.bound:
			return fmt.Errorf("--assert %s does not hold: it is %v", a.text, v)
		}
	}
	if !known {
		return fmt.Errorf("--assert %s: scope %s was not run", a.text, a.scope)
	}
	return nil
}
