package limiter

import "github.com/headway-limiter/headway/fleet"

// Fleet is what the limiter asks of its peers. Both methods are cheap and
// never block. What it answers is advice: it makes positions and estimates
// reach over the fleet, and never decides an admission.
type Fleet interface {
	// View returns the latest snapshot of the other replicas; it is not nil.
	View() *fleet.View
	// Publish says what this replica's lines look like now.
	Publish(pools []fleet.Pool, inFlight int64)
}
