package config

import "time"

// Turn is a path whose requests take several steps: each asks a model, and the last
// one answers the caller. Steps lead to later ones only, so a turn ends.
type Turn struct {
	Name      string        `yaml:"name" help:"what messages and metrics call it"`
	Path      string        `yaml:"path" help:"exact path below /v1/; clients of chat completions use it as their base URL"`
	MaxRounds int           `yaml:"max_rounds" help:"how often one step may call tools before the model has to answer"`
	Timeout   time.Duration `yaml:"timeout" help:"longest life of a turn, waits and tools included; server.timeouts.total bounds it too"`
	Steps     []Step        `yaml:"steps" help:"the first is where a turn begins"`
}

// Kinds of step.
const (
	StepDispatch = "dispatch" // asks a model; without next its answer is the caller's
	StepClassify = "classify" // asks a model which step is next
)

// Step is one question to a model.
type Step struct {
	Name      string   `yaml:"name" help:"what other steps call it, and {{name}} in their prompts stands for its answer"`
	Kind      string   `yaml:"kind" enum:"dispatch|classify" help:"dispatch: the answer is the caller's, or with next that of the prompts of later steps; classify: the answer chooses the next step"`
	Model     string   `yaml:"model" help:"model that is asked"`
	Upstreams []string `yaml:"upstreams" help:"names of upstreams to ask, best first; empty: all whose models name it"`
	Tags      []string `yaml:"tags" help:"only upstreams that have all of these"`
	System    string   `yaml:"system" help:"instruction that is put in front of the messages"`
	Prompt    string   `yaml:"prompt" help:"asked in place of the caller's messages; {{question}} is the caller's last message, {{conversation}} all of them, {{name}} the answer of an earlier step"`
	MaxTokens int64    `yaml:"max_tokens" help:"bound on the answer; 0: the caller's, or for classify 16"`
	Choices   []Choice `yaml:"choices" help:"answers of a classify step and the steps they lead to"`
	Default   string   `yaml:"default" help:"step after any other answer of a classify step; empty: such a turn fails"`
	Next      string   `yaml:"next" help:"step after a dispatch step; empty: it is the last"`
	Fallback  string   `yaml:"fallback" help:"step in place of this one where it fails before anything was told to the caller"`
	Tools     []string `yaml:"tools" help:"names of tools that the model may call"`
}

// Choice is one answer of a classify step.
type Choice struct {
	Answer string `yaml:"answer" help:"word that the model answers with, in any case"`
	Step   string `yaml:"step" help:"the step it leads to"`
}

// Tool is an HTTP endpoint that models may have called. Only these are ever called.
type Tool struct {
	Name        string        `yaml:"name" help:"what models call it: letters, digits, _ and -"`
	Description string        `yaml:"description" help:"what it does, for the model"`
	Parameters  string        `yaml:"parameters" help:"JSON Schema of its arguments; empty: any object"`
	URL         string        `yaml:"url" help:"http or https address; the arguments are posted as JSON"`
	Credential  Secret        `yaml:"credential" help:"sent as Bearer token; empty: none"`
	Timeout     time.Duration `yaml:"timeout" help:"longest time one call takes"`
	MaxBytes    Size          `yaml:"max_bytes" help:"largest answer; a larger one is an error to the model"`
}

// Defaults of list entries.
func defaultTurn() Turn { return Turn{MaxRounds: 4, Timeout: 2 * time.Minute} }
func defaultStep() Step { return Step{Kind: StepDispatch} }
func defaultTool() Tool { return Tool{Timeout: 10 * time.Second, MaxBytes: 64 << 10} }

// Can lists the places in c.Upstreams of those that a step may ask, best first.
func (s Step) Can(c *Config) []int {
	var out []int
	may := func(i int, u Upstream) {
		named := len(s.Upstreams) > 0
		if u.Kind == KindOpenAI && (contains(u.Models, s.Model) || named && len(u.Models) == 0) && containsAll(u.Tags, s.Tags) {
			out = append(out, i)
		}
	}
	for _, name := range s.Upstreams {
		for i, u := range c.Upstreams {
			if u.Name == name {
				may(i, u)
			}
		}
	}
	if len(s.Upstreams) == 0 {
		for i, u := range c.Upstreams {
			may(i, u)
		}
	}
	return out
}
