package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// tailBound cuts every sample at this multiple of its distribution's mean, so
// that one unlucky draw does not outlast a whole run.
const tailBound = 50

// Dist is a distribution of non-negative numbers: seconds or counts. The zero
// Dist is always 0. A Dist is a value and safe for concurrent use.
type Dist struct {
	kind string // "", "uniform", "exp" or "lognormal"; "" is the constant a
	a, b float64
}

// Constant is always v, in whatever unit the caller counts.
func Constant(v float64) Dist { return Dist{a: v} }

// Uniform is spread evenly over lo to hi.
func Uniform(lo, hi float64) Dist { return Dist{kind: "uniform", a: lo, b: hi} }

// Exponential has the given mean. It is the gap between independent events.
func Exponential(mean float64) Dist { return Dist{kind: "exp", a: mean} }

// LogNormal has the given median; sigma is the standard deviation of its
// logarithm. Provider latencies look like it, with a sigma around 0.5.
func LogNormal(median, sigma float64) Dist { return Dist{kind: "lognormal", a: median, b: sigma} }

// Mean is the expected value before the tail is cut.
func (d Dist) Mean() float64 {
	switch d.kind {
	case "uniform":
		return (d.a + d.b) / 2
	case "lognormal":
		return d.a * math.Exp(d.b*d.b/2)
	}
	return d.a
}

// Sample draws one value, at most 50 times the mean.
func (d Dist) Sample(r *rand.Rand) float64 {
	switch d.kind {
	case "uniform":
		return d.a + (d.b-d.a)*r.Float64()
	case "exp":
		return min(d.a*r.ExpFloat64(), tailBound*d.a)
	case "lognormal":
		return min(d.a*math.Exp(d.b*r.NormFloat64()), tailBound*d.Mean())
	}
	return d.a
}

// Duration draws one value and takes it as seconds.
func (d Dist) Duration(r *rand.Rand) time.Duration {
	return time.Duration(d.Sample(r) * float64(time.Second))
}

// ParseLatency reads a distribution of durations: "50ms", "uniform:10ms,90ms",
// "exp:50ms" (the mean) or "lognormal:50ms,0.5" (median and sigma).
func ParseLatency(text string) (Dist, error) {
	return parseDist(text, func(s string) (float64, error) {
		d, err := time.ParseDuration(s)
		return d.Seconds(), err
	})
}

// ParseSize reads a distribution of counts: "20", "uniform:5,50", "exp:20" or
// "lognormal:20,0.8".
func ParseSize(text string) (Dist, error) {
	return parseDist(text, number)
}

func number(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

func parseDist(text string, unit func(string) (float64, error)) (Dist, error) {
	kind, rest, ok := strings.Cut(text, ":")
	if !ok {
		kind, rest = "", text
	}
	args := strings.Split(rest, ",")
	second := map[string]func(string) (float64, error){"uniform": unit, "lognormal": number}[kind]
	want := 1
	if second != nil {
		want = 2
	}
	if kind != "" && kind != "exp" && second == nil || len(args) != want {
		return Dist{}, fmt.Errorf("bench: distribution %q is not VALUE, uniform:LOW,HIGH, exp:MEAN or lognormal:MEDIAN,SIGMA", text)
	}
	d := Dist{kind: kind}
	var err error
	if d.a, err = unit(strings.TrimSpace(args[0])); err == nil && second != nil {
		d.b, err = second(strings.TrimSpace(args[1]))
	}
	if err != nil {
		return Dist{}, fmt.Errorf("bench: distribution %q: %w", text, err)
	}
	// The comparisons are false for NaN, which must not pass either.
	if !(d.a >= 0 && d.b >= 0 && d.a < math.Inf(1) && d.b < math.Inf(1)) || kind == "uniform" && d.b < d.a {
		return Dist{}, fmt.Errorf("bench: distribution %q: values must be finite, not negative and in order", text)
	}
	return d, nil
}
