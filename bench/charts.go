package bench

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
)

// Measures of the charts.
const (
	chartWidth  = 900.0
	chartHeight = 260.0
	leftEdge    = 44.0
	rightEdge   = 64.0 // room for the name at the end of a line
	footer      = 26.0
)

// bars shows the figures that decide, each with one bar per scope.
func (c Comparison) bars() template.HTML {
	figures := []struct {
		name  string
		value func(*Run) float64
		text  func(float64) string
		least float64 // the scale's end is at least this
	}{
		{"Jain", func(r *Run) float64 { return r.Jain }, func(v float64) string { return fmt.Sprintf("%.4f", v) }, 1},
		{"small tenants' p99", func(r *Run) float64 { return r.SmallP99MS }, Millis, 0},
		{"calls per grant", func(r *Run) float64 { return r.CallsPerGrant }, func(v float64) string { return fmt.Sprintf("%.2f", v) }, 0},
		{"utilisation", func(r *Run) float64 { return r.Utilisation }, func(v float64) string { return fmt.Sprintf("%.3f", v) }, 1},
	}
	const height, gap = 18.0, 34.0
	cell := (chartWidth + gap) / float64(len(figures))
	d := newCanvas(chartWidth, 26+float64(len(c))*(height+6), "figures side by side")
	for i, f := range figures {
		x, most := float64(i)*cell, f.least
		for _, r := range c {
			most = max(most, f.value(r))
		}
		d.text("name", "start", x, 14, f.name)
		bar := scale{lo: 0, hi: max(most, 1e-9), from: 0, to: cell - gap - 58}
		for j, r := range c {
			y, w := 24+float64(j)*(height+6), bar.at(f.value(r))
			d.rect(r.Scope+"-f", x, y, max(w, 1), height)
			d.text("", "start", x+w+6, y+13, f.text(f.value(r)))
		}
	}
	return d.end()
}

// overTime is Jain of every second.
func (c Comparison) overTime() template.HTML {
	d := newCanvas(chartWidth, chartHeight, "Jain's index of every second, by scope")
	total := float64(len(c[0].JainSeries))
	x := scale{lo: 0, hi: max(total, 1), from: leftEdge, to: chartWidth - rightEdge}
	y := scale{lo: 0, hi: 1, from: chartHeight - footer, to: 10}
	d.rect("band", x.at(0), y.at(1), x.at(c[0].WarmS)-x.at(0), y.at(0)-y.at(1))
	if c[0].WarmS > 0 {
		d.text("", "start", x.at(0)+6, y.at(0)-8, "warm-up")
	}
	for _, f := range c[len(c)-1].Faults {
		from := x.at(c[0].WarmS + f.AtS)
		d.rect("band", from, y.at(1), max(x.at(c[0].WarmS+f.AtS+f.ForS)-from, 2), y.at(0)-y.at(1))
		d.text("", "start", from+4, y.at(0)-8, f.Kind)
	}
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		d.line("grid", x.from, y.at(v), x.to, y.at(v))
		d.text("", "end", x.from-8, y.at(v)+4, fmt.Sprint(v))
	}
	for _, v := range steps(0, total, 8) {
		d.text("", "middle", x.at(v), chartHeight-6, fmt.Sprintf("%g s", v))
	}
	ends := make([]label, len(c))
	for i, r := range c {
		var xs, ys []float64
		for s, jain := range r.JainSeries {
			xs, ys = append(xs, x.at(float64(s)+0.5)), append(ys, y.at(jain))
		}
		d.curve("line "+r.Scope+"-l", xs, ys)
		if len(ys) > 0 {
			ends[i] = label{r.Scope, ys[len(ys)-1]}
		}
	}
	d.names(x.to+6, ends)
	return d.end()
}

// label is a name at the height of a line's end.
type label struct {
	text string
	y    float64
}

// names writes labels below each other, moved apart where they would overlap.
func (c *canvas) names(x float64, labels []label) {
	const apart = 14.0
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	for i := range labels { // few: those above were placed before
		for moved := true; moved; {
			moved = false
			for _, other := range labels[:i] {
				if math.Abs(labels[i].y-other.y) < apart {
					labels[i].y, moved = other.y+apart, true
				}
			}
		}
		c.text("name", "start", x, labels[i].y+4, labels[i].text)
	}
}

// shares is received/entitled of the shown tenants, a row for each.
func (c Comparison) shares() template.HTML {
	const row, left, apart = 24.0, 130.0, 4.5 // apart: dots of one row, which would hide each other
	shown := c.shown()
	height := 16 + row*float64(len(shown)) + footer
	d := newCanvas(chartWidth, height, "received as a multiple of entitled, by tenant and scope")
	x := scale{lo: 0.125, hi: 8, from: left, to: chartWidth - 20, log: true}
	for _, r := range c {
		x.hi = max(x.hi, math.Exp2(math.Ceil(math.Log2(max(r.BestShare, 1)))))
	}
	for v := x.lo; v <= x.hi; v *= 2 {
		class, text := "grid", fmt.Sprintf("%g×", v)
		if v == 1 {
			class, text = "one", "entitled"
		} else if v < 1 {
			text = fmt.Sprintf("1/%g", 1/v)
		}
		d.line(class, x.at(v), 10, x.at(v), height-footer)
		d.text("", "middle", x.at(v), height-8, text)
	}
	for n, i := range shown {
		y := 20 + row*float64(n)
		d.text("name", "end", left-12, y+4, c[0].Tenants[i].Name)
		for j, r := range c {
			t := r.Tenants[i]
			level := y + apart*(float64(j)-float64(len(c)-1)/2)
			d.dot("dot "+r.Scope+"-f", x.at(float64(t.Received)/t.Entitled), level, 4.5,
				fmt.Sprintf("%s, %s: received %d of %.0f", t.Name, r.Scope, t.Received, t.Entitled))
		}
	}
	return d.end()
}

// waits is the distribution of the small tenants' waits.
func (c Comparison) waits() template.HTML {
	d := newCanvas(chartWidth, chartHeight, "distribution of the small tenants' waits, by scope")
	most := 10.0
	for _, r := range c {
		most = max(most, r.SmallMaxMS)
	}
	x := scale{lo: 1, hi: math.Pow(10, math.Ceil(math.Log10(most))), from: leftEdge, to: chartWidth - rightEdge, log: true}
	y := scale{lo: 0, hi: 1, from: chartHeight - footer, to: 10}
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 1} {
		d.line("grid", x.from, y.at(v), x.to, y.at(v))
		d.text("", "end", x.from-8, y.at(v)+4, fmt.Sprintf("%.0f%%", 100*v))
	}
	for v := x.lo; v <= x.hi; v *= 10 {
		d.line("grid", x.at(v), y.at(0), x.at(v), y.at(1))
		text := fmt.Sprintf("%g ms", v)
		if v >= 1000 {
			text = fmt.Sprintf("%g s", v/1000)
		}
		d.text("", "middle", x.at(v), chartHeight-6, text)
	}
	for _, r := range c {
		if r.SmallWaits == 0 {
			continue
		}
		var xs, ys []float64
		for i, ms := range r.WaitQuantilesMS {
			xs, ys = append(xs, x.at(ms)), append(ys, y.at(WaitQuantiles[i]))
		}
		d.curve("line "+r.Scope+"-l", xs, ys)
		d.dot("dot "+r.Scope+"-f", x.at(r.SmallP99MS), y.at(0.99), 5, fmt.Sprintf("%s: 99%% within %s", r.Scope, Millis(r.SmallP99MS)))
	}
	return d.end()
}
