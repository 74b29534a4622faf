package gateway

import "testing"

// TestIntakeGrowsAndShrinks: a filled buffer asks for a large one, which goes
// back as soon as an answer comes in small parts again.
func TestIntakeGrowsAndShrinks(t *testing.T) {
	var in intake
	for _, step := range []struct{ read, want int }{{0, sip}, {sip - 1, sip}, {sip, chunk}, {chunk, chunk}, {sip, chunk}, {sip - 1, sip}, {100, sip}} {
		if got := len(in.next(step.read)); got != step.want {
			t.Fatalf("after a read of %d bytes: a buffer of %d, want %d", step.read, got, step.want)
		}
	}
	if in.large != nil {
		t.Error("an answer in small parts holds a large buffer")
	}
}
