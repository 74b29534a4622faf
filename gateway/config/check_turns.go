package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func containsAll(list, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !contains(list, s) })
}

// word is what steps and tools may be called: it stands in prompts, and models repeat
// it.
var word = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

const wordFix = "use up to 64 letters, digits, _ and -"

// maxToolRounds bounds max_rounds: each round is a dispatch.
const maxToolRounds = 32

// turns checks that every turn ends, and that every step has somebody to ask.
func (k *checker) turns() {
	paths, tools := map[string]int{}, k.tools()
	for i, t := range k.Turns {
		at := fmt.Sprintf("turns[%d]", i)
		if !word.MatchString(t.Name) {
			k.wrong(at+".name", wordFix, "%q is not a name", t.Name)
		}
		first, twice := paths[t.Path]
		switch {
		case !strings.HasPrefix(t.Path, "/v1/") || strings.HasSuffix(t.Path, "/") || strings.ContainsAny(t.Path, "*?#%"):
			k.wrong(at+".path", "write an exact path, such as /v1/turns/answer", "%q is not a path below /v1/", t.Path)
		case twice:
			k.wrong(at+".path", "give each turn its own path", "%q is also the path of turns[%d]", t.Path, first)
		}
		paths[t.Path] = i
		if t.MaxRounds < 1 || t.MaxRounds > maxToolRounds {
			k.wrong(at+".max_rounds", fmt.Sprintf("write 1 to %d", maxToolRounds), "%d is out of range", t.MaxRounds)
		}
		k.positive(at+".timeout", t.Timeout)
		if len(t.Steps) == 0 && !k.unread(at+".steps") {
			k.wrong(at+".steps", "add a step", "there are no steps")
		}
		names := make([]string, len(t.Steps))
		for j, s := range t.Steps {
			path := fmt.Sprintf("%s.steps[%d]", at, j)
			switch first := slices.Index(names[:j], s.Name); {
			case !word.MatchString(s.Name) || s.Name == "question" || s.Name == "conversation":
				k.wrong(path+".name", wordFix+", but not question or conversation", "%q is not a name", s.Name)
			case first >= 0:
				k.wrong(path+".name", "give each step its own name", "%q is also the name of steps[%d]", s.Name, first)
			}
			names[j] = s.Name
		}
		for j, s := range t.Steps {
			k.step(fmt.Sprintf("%s.steps[%d]", at, j), s, names[:j], names[j+1:], tools)
		}
	}
}

// step checks one step; before and after are the names of the others.
func (k *checker) step(at string, s Step, before, after, tools []string) {
	if s.Model == "" {
		k.wrong(at+".model", "name the model to ask", "the model is missing")
	} else if len(s.Can(k.Config)) == 0 && !k.unread("upstreams") {
		k.wrong(at, "add "+s.Model+" to the models of an upstream of kind openai, or name upstreams that take any", "no upstream can be asked for %q", s.Model)
	}
	names := make([]string, len(k.Upstreams))
	for i, u := range k.Upstreams {
		names[i] = u.Name
	}
	for i, name := range s.Upstreams {
		k.upstreamNamed(fmt.Sprintf("%s.upstreams[%d]", at, i), name, names)
	}
	k.atLeast(at+".max_tokens", s.MaxTokens, 0)
	later := func(path, name string) {
		if name != "" && !contains(after, name) {
			k.wrong(path, "name a step that comes later", "there is no later step %q", name)
		}
	}
	later(at+".next", s.Next)
	later(at+".default", s.Default)
	later(at+".fallback", s.Fallback)
	for i, c := range s.Choices {
		path := fmt.Sprintf("%s.choices[%d]", at, i)
		later(path+".step", c.Step)
		if strings.TrimSpace(c.Answer) == "" || c.Step == "" {
			k.wrong(path, "write {answer: word, step: name}", "answer or step is missing")
		}
	}
	if classifies := s.Kind == StepClassify; classifies && len(s.Choices) == 0 {
		k.wrong(at+".choices", "write choices, such as [{answer: code, step: coder}]", "a classify step chooses nothing")
	} else if classifies && (s.Next != "" || len(s.Tools) > 0) {
		k.wrong(at, "remove next and tools, or set kind: dispatch", "a classify step goes on by its choices, and calls no tools")
	} else if !classifies && (len(s.Choices) > 0 || s.Default != "") {
		k.wrong(at, "set kind: classify, or remove choices and default", "a dispatch step has no choices")
	}
	for i, name := range s.Tools {
		if !contains(tools, name) {
			k.wrong(fmt.Sprintf("%s.tools[%d]", at, i), didYouMean(name, tools), "there is no tool %q", name)
		}
	}
	k.prompt(at+".prompt", s.Prompt, before)
	k.prompt(at+".system", s.System, before)
}

// placeholder is what a prompt is filled in at.
var placeholder = regexp.MustCompile(`\{\{(.*?)\}\}`)

func (k *checker) prompt(at, text string, before []string) {
	known := append([]string{"question", "conversation"}, before...)
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		if !contains(known, m[1]) {
			k.wrong(at, "write {{"+strings.Join(known, "}}, {{")+"}}", "nothing is known that {{%s}} stands for", m[1])
		}
	}
}

// tools checks the endpoints that models may call, and returns their names.
func (k *checker) tools() []string {
	var names []string
	for i, t := range k.Tools {
		at := fmt.Sprintf("tools[%d]", i)
		switch first := slices.Index(names, t.Name); {
		case !word.MatchString(t.Name):
			k.wrong(at+".name", wordFix, "%q is not a name", t.Name)
		case first >= 0:
			k.wrong(at+".name", "give each tool its own name", "%q is also the name of tools[%d]", t.Name, first)
		}
		names = append(names, t.Name)
		k.upstreamURL(at+".url", t.URL)
		var schema map[string]any
		if t.Parameters != "" && json.Unmarshal([]byte(t.Parameters), &schema) != nil {
			k.wrong(at+".parameters", `write a JSON Schema, such as {"type":"object"}`, "not a JSON object")
		}
		k.positive(at+".timeout", t.Timeout)
		k.atLeast(at+".max_bytes", int64(t.MaxBytes), 1)
		used := slices.ContainsFunc(k.Turns, func(turn Turn) bool {
			return slices.ContainsFunc(turn.Steps, func(s Step) bool { return contains(s.Tools, t.Name) })
		})
		if !used && t.Name != "" {
			k.warn(at, "add it to the tools of a step", "no step calls %q", t.Name)
		}
	}
	return names
}

// turnsAsk reports whether a turn leads to the upstream at a place.
func (c *Config) turnsAsk(upstream int) bool {
	return slices.ContainsFunc(c.Turns, func(t Turn) bool {
		return slices.ContainsFunc(t.Steps, func(s Step) bool { return slices.Contains(s.Can(c), upstream) })
	})
}
