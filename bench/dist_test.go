package bench

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDistMeans(t *testing.T) {
	const n = 20_000
	for _, text := range []string{"50ms", "uniform:10ms,90ms", "exp:50ms", "lognormal:50ms,0.5"} {
		d, err := ParseLatency(text)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		var sum float64
		for range n {
			v := d.Sample(r)
			if v < 0 || v > tailBound*d.Mean() {
				t.Fatalf("%s: sample %v is out of bounds", text, v)
			}
			sum += v
		}
		if mean := sum / n; math.Abs(mean-d.Mean()) > 0.03*d.Mean() {
			t.Errorf("%s: mean of %d samples %v, want %v ±3%%", text, n, mean, d.Mean())
		}
	}
}

func TestParseDist(t *testing.T) {
	if d, err := ParseSize("uniform:5,50"); err != nil || d != Uniform(5, 50) {
		t.Errorf("uniform:5,50 = %+v, %v", d, err)
	}
	if d, err := ParseLatency("250ms"); err != nil || d.Duration(nil) != 250*time.Millisecond {
		t.Errorf("250ms = %+v, %v", d, err)
	}
	for _, text := range []string{"", "abc", "-5", "NaN", "Inf", "uniform:5", "uniform:9,5", "exp:1,2", "pareto:3", "lognormal:5,x", "lognormal:5"} {
		if d, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %+v, want an error", text, d)
		}
	}
}
