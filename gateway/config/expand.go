package config

import (
	"errors"
	"fmt"
	"strings"
)

// maxReferences bounds how deep defaults may hold further references.
const maxReferences = 8

// expand replaces the environment references in one value:
//
//	${NAME}        the variable, which must be set (it may be empty)
//	${NAME:-text}  the variable, or text when it is unset or empty
//	$${            a literal ${
//
// What a variable yields is not expanded again. An error names the variable
// and never its content.
func expand(text string, env func(string) (string, bool)) (string, error) {
	return expandDepth(text, env, 0)
}

// expandDepth is expand inside depth defaults. It looks for the next reference,
// copies what stands before it, and goes on behind it.
func expandDepth(text string, env func(string) (string, bool), depth int) (string, error) {
	if depth > maxReferences {
		return "", fmt.Errorf("references are nested deeper than %d", maxReferences)
	}
	var out strings.Builder
	for {
		at := strings.Index(text, "${")
		if at < 0 {
			out.WriteString(text)
			return out.String(), nil
		}
		if at > 0 && text[at-1] == '$' {
			out.WriteString(text[:at-1] + "${")
			text = text[at+2:]
			continue
		}
		out.WriteString(text[:at])
		body, rest, ok := cutReference(text[at+2:])
		if !ok {
			return "", fmt.Errorf("%s has no closing brace", text[at:])
		}
		value, err := reference(body, env, depth)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		text = rest
	}
}

// cutReference splits text after the brace that closes a reference whose
// opening was just before text.
func cutReference(text string) (body, rest string, ok bool) {
	open := 1
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "${"):
			open++
		case text[i] == '}':
			open--
		}
		if open == 0 {
			return text[:i], text[i+1:], true
		}
	}
	return "", "", false
}

// reference resolves what stands between the braces. As in a shell, :- also
// replaces a variable that is set and empty: deployments pass on variables that
// nobody filled in.
func reference(body string, env func(string) (string, bool), depth int) (string, error) {
	name, fallback, hasFallback := strings.Cut(body, ":-")
	if !validName(name) {
		return "", fmt.Errorf("${%s} does not name an environment variable", body)
	}
	value, set := env(name)
	switch {
	case hasFallback && value == "":
		return expandDepth(fallback, env, depth+1)
	case !set:
		return "", unset(name)
	}
	return value, nil
}

// unset names a variable that a reference without a default needs.
type unset string

// Error implements error.
func (u unset) Error() string { return "environment variable " + string(u) + " is not set" }

// fixReference says what to do about an error of expand.
func fixReference(err error) string {
	if name := unset(""); errors.As(err, &name) {
		return fmt.Sprintf("export %s=VALUE, or write ${%s:-default}", string(name), string(name))
	}
	return "write ${NAME} for a variable that is set, or ${NAME:-default}"
}

// required reports whether text refers to a variable and does not say what holds
// when that is empty.
func required(text string) bool { return strings.Contains(text, "${") && !strings.Contains(text, ":-") }

// validName reports whether name is a portable variable name.
func validName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
