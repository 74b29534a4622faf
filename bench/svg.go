package bench

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// canvas is an SVG drawing under way, in units of about a pixel.
type canvas struct {
	b             strings.Builder
	width, height float64
}

func newCanvas(width, height float64, label string) *canvas {
	c := &canvas{width: width, height: height}
	fmt.Fprintf(&c.b, `<svg viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`, width, height, html.EscapeString(label))
	return c
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.b, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

func (c *canvas) rect(class string, x, y, w, h float64) {
	fmt.Fprintf(&c.b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, class, x, y, max(w, 0), h)
}

// text is anchored at its start, middle or end.
func (c *canvas) text(class, anchor string, x, y float64, s string) {
	fmt.Fprintf(&c.b, `<text class="%s" text-anchor="%s" x="%.1f" y="%.1f">%s</text>`, class, anchor, x, y, html.EscapeString(s))
}

// dot shows its title when it is pointed at.
func (c *canvas) dot(class string, x, y, r float64, title string) {
	fmt.Fprintf(&c.b, `<circle class="%s" cx="%.1f" cy="%.1f" r="%.1f"><title>%s</title></circle>`, class, x, y, r, html.EscapeString(title))
}

// curve joins points by straight lines.
func (c *canvas) curve(class string, xs, ys []float64) {
	points := make([]string, len(xs))
	for i := range xs {
		points[i] = fmt.Sprintf("%.1f,%.1f", xs[i], ys[i])
	}
	fmt.Fprintf(&c.b, `<polyline class="%s" points="%s"/>`, class, strings.Join(points, " "))
}

// end finishes the drawing. Everything in it that is not a number was escaped.
func (c *canvas) end() template.HTML {
	return template.HTML(c.b.String() + "</svg>")
}

// scale maps values to places on a canvas, by their logarithm if log.
type scale struct {
	lo, hi   float64 // values
	from, to float64 // places
	log      bool
}

// at is the place of v; values outside are drawn at the end.
func (s scale) at(v float64) float64 {
	v = min(max(v, s.lo), s.hi)
	part := (v - s.lo) / (s.hi - s.lo)
	if s.log {
		part = math.Log(v/s.lo) / math.Log(s.hi/s.lo)
	}
	return s.from + part*(s.to-s.from)
}

// steps are round values about n apart between lo and hi: 1, 2 or 5 times a
// power of ten.
func steps(lo, hi float64, n int) (out []float64) {
	raw := (hi - lo) / float64(n)
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * power
	for _, m := range []float64{1, 2, 5} {
		if m*power >= raw {
			step = m * power
			break
		}
	}
	for v := math.Ceil(lo/step) * step; v <= hi+step/1e6; v += step {
		out = append(out, v)
	}
	return out
}
