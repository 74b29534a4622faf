package batch_test

import (
	"strings"
	"testing"
)

// TestEndpointHasToBeRouted: who makes a batch for a path that leads nowhere is told
// that, and not after each of its jobs has failed.
func TestEndpointHasToBeRouted(t *testing.T) {
	s := start(t, newUpstream(t), "batch: {enabled: true}\n", "path: /v1/*", "path: /v1/chat/*")
	file := s.upload("ann", lines("a", 1))
	const js, unrouted = "application/json", `,"endpoint":"/v1/embeddings"`
	s.refused("POST", "/v1/batches", "ann", js, ask(file, unrouted), 400, "invalid_endpoint")
	if _, body := s.call("POST", "/v1/batches", "ann", js, ask(file, unrouted)); !strings.Contains(body, "/v1/embeddings is not routed") {
		t.Errorf("the refusal does not say why: %s", body)
	}
	s.batch("ann", file)
}
