package config

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

// yamlLine finds the line in the parser's own messages.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// indentedByTab is a line with a tab before its content, or without any.
var indentedByTab = regexp.MustCompile(`^[ -]*\t`)

// notYAML is what the parser could not read in data.
func notYAML(err error, data []byte) Problem {
	// The parser tells the line in its text alone, and not if it is the first.
	m := yamlLine.FindStringSubmatch(err.Error())
	if m == nil {
		m = []string{"", "", err.Error()}
	}
	line, _ := strconv.Atoi(m[1])
	if at := tabAt(m[2], max(1, line), data); at > 0 {
		return Problem{Line: at, What: "this is not YAML: a tab in the indentation", Fix: "indent with spaces"}
	}
	return Problem{Line: line, What: "this is not YAML: " + m[2], Fix: "check indentation, colons and quotes near this line"}
}

// tabAt is the line of the tab that a message of the parser is about; 0: it is not
// about one. Some messages are given the line at which the value began that the tab
// is in; the others name no character, so any could be meant, but none before a tab.
func tabAt(message string, line int, data []byte) int {
	lines := bytes.Split(data, []byte("\n"))
	switch {
	case strings.HasPrefix(message, "found a tab character"):
	case strings.HasPrefix(message, "found character that cannot start any token"):
		lines = lines[:min(line, len(lines))]
	default:
		return 0
	}
	for ; line <= len(lines); line++ {
		if indentedByTab.Match(lines[line-1]) {
			return line
		}
	}
	return 0
}
