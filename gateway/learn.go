package gateway

// guess is what is kept of an estimate, to compare it with what the answer tells.
type guess struct {
	how   string // as cost.Estimate has it; empty: there was none
	text  int64  // bytes of text in the prompt
	alone bool   // the prompt is nothing but text
}

// input is what the prompt had, whatever of it came from a cache or went into one.
func (u usage) input() int64 { return max(u.Prompt, u.Input+u.Written+u.Read) }

// learn compares a request's estimate with what its answer told, and lets the
// estimator have what was told of the prompt.
func (g *Gateway) learn(j job, u usage) {
	if total, told := u.total(); told && j.guess.how != "" && j.tokens > 0 {
		g.metrics.ratio.WithLabelValues("total", j.guess.how).Observe(float64(j.tokens) / float64(max(total, 1)))
	}
	input := u.input()
	if input <= 0 || j.prompt <= 0 {
		return
	}
	g.metrics.ratio.WithLabelValues("input", j.guess.how).Observe(float64(j.prompt) / float64(input))
	if j.guess.alone {
		g.opts.Cost.Learn(j.model, j.guess.text, input)
	}
}
