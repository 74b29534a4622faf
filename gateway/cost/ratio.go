package cost

import "math"

const (
	// DefaultBytesPerToken is what a token has where nothing is known: about 4
	// bytes of English, and about as many in scripts of three bytes a letter and
	// more than a token a letter's half.
	DefaultBytesPerToken = 4
	// A token is taken to have between minBytesPerToken and maxBytesPerToken; what
	// reports say beyond leastPlausible and mostPlausible is no measurement: a
	// prompt read from a cache and not counted, say.
	minBytesPerToken, maxBytesPerToken = 1, 12
	leastPlausible, mostPlausible      = 0.5, 32
	// minLearned is the shortest text that is learned from, in bytes.
	minLearned = 256
	// memory is how many reports the mean is over, at most.
	memory = 32
	// maxModels bounds how many models are remembered, and maxModelName the length
	// of their names in bytes.
	maxModels, maxModelName = 256, 128
)

// ratio is what was learned of one model.
type ratio struct {
	mean float64 // of ln(bytes per token)
	n    float64 // reports, up to memory-1
	used uint64  // which report was the last
}

// ratios are those of the models that answered last.
type ratios struct {
	models  map[string]*ratio
	reports uint64 // that were learned from
}

// of returns how many bytes a token of the model has, and whether that was learned.
func (rs *ratios) of(model string) (bytesPerToken float64, learned bool) {
	if len(model) <= maxModelName { // a lookup reads all of a name
		if r := rs.models[model]; r != nil {
			return min(max(math.Exp(r.mean), minBytesPerToken), maxBytesPerToken), true
		}
	}
	return DefaultBytesPerToken, false
}

// learn moves the model's mean towards one report.
func (rs *ratios) learn(model string, bytes, tokens int64) {
	told := float64(bytes) / float64(tokens)
	if told < leastPlausible || told > mostPlausible {
		return
	}
	r := rs.models[model]
	if r == nil {
		if len(rs.models) >= maxModels {
			rs.forget()
		}
		r = &ratio{mean: math.Log(DefaultBytesPerToken)}
		rs.models[model] = r
	}
	rs.reports++
	r.n, r.used = min(r.n+1, memory-1), rs.reports
	r.mean += min(max(math.Log(told)-r.mean, -math.Ln2), math.Ln2) / (r.n + 1)
}

// forget drops the model that answered longest ago.
func (rs *ratios) forget() {
	oldest := ""
	for model, r := range rs.models {
		if oldest == "" || r.used < rs.models[oldest].used {
			oldest = model
		}
	}
	delete(rs.models, oldest)
}
