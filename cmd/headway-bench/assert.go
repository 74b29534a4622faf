package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		data, err := json.Marshal(r.report)
		if err != nil {
			return err
		}
		var numbers map[string]any
		if err := json.Unmarshal(data, &numbers); err != nil {
			return err
		}
		v, ok := numbers[a.key].(float64)
		if !ok {
			return fmt.Errorf("--assert %s: the report has no number %s", a.text, a.key)
		}
		if a.most && v > a.bound || !a.most && v < a.bound {
			return fmt.Errorf("--assert %s does not hold: it is %v", a.text, v)
		}
	}
	if !known {
		return fmt.Errorf("--assert %s: scope %s was not run", a.text, a.scope)
	}
	return nil
}
