package batch_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestEndpointsArePlain: an endpoint is a path that means one thing to everybody.
func TestEndpointsArePlain(t *testing.T) {
	s := start(t, newUpstream(t), "batch: {enabled: true, workers: 0}\n")
	file := s.upload("ann", lines("a", 1))
	for _, path := range []string{
		"", "/", "/v1/", "/v2/x", "/v1/chat completions", "/v1/\n", "/v1/chat\x7f", "/v1/caf\u00e9", "/v1/" + strings.Repeat("x", 5000),
		"/v1//files", "/v1/./files", "/v1/../x", "/v1/x?y", "/v1/x#y", "/v1/%66iles", `/v1/x\y`, "/v1/files", "/v1/batches/b",
	} {
		quoted, err := json.Marshal(path)
		if err != nil {
			t.Fatal(err)
		}
		s.refused("POST", "/v1/batches", "ann", "application/json", ask(file, fmt.Sprintf(`,"endpoint":%s`, quoted)), 400, "invalid_endpoint")
	}
	s.must("POST", "/v1/batches", "ann", map[string]any{"input_file_id": file, "endpoint": "/v1/audio/speech-2_x", "completion_window": "24h"})
}

// TestByteOrderMark: what an editor puts in front of a file is no part of its first
// request.
func TestByteOrderMark(t *testing.T) {
	s := start(t, newUpstream(t), "batch: {enabled: true, workers: 0}\n")
	for text, want := range map[string]string{
		"\ufeff" + lines("a", 2):    lines("a", 2),
		"\ufeff\ufeffx\n":           "\ufeffx\n",
		lines("a", 1) + "\ufeffx\n": lines("a", 1) + "\ufeffx\n",
		"\xef\xbb":                  "\xef\xbb\n",
		"x":                         "x\n",
	} {
		file := s.upload("ann", text)
		if _, got := s.call("GET", "/v1/files/"+file+"/content", "ann", "", nil); got != want {
			t.Errorf("of %q there is %q, want %q", text, got, want)
		}
	}
}
