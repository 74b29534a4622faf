package console

import "time"

// Live is all that an operator is shown, of one instant at one replica. It is the
// body of each event of /api/events, and its parts are those of the other pages.
type Live struct {
	Overview Overview `json:"overview"`
	Tenants  Tenants  `json:"tenants"`
	Queues   Queues   `json:"queues"`
	Agents   Agents   `json:"agents"`
	Refusals Refusals `json:"refusals"`
}

// Overview is the replica as a whole. Counters begin when the process does.
type Overview struct {
	At       time.Time `json:"at"` // by this replica's clock
	Replica  string    `json:"replica"`
	Build    string    `json:"build"`
	Config   string    `json:"config"` // short hash of the configuration in force
	Ready    bool      `json:"ready"`
	Reasons  []string  `json:"reasons"` // why it is not ready, or worse than usual
	Draining bool      `json:"draining"`
	Store    Store     `json:"store"`
	Fleet    Fleet     `json:"fleet"`
	Serving  int64     `json:"serving"` // requests being served or waiting here
	Running  int64     `json:"running"` // of those, admitted ones
	Waiting  int       `json:"waiting"` // of those, in lines
	Most     int       `json:"max_waiting"`
	// Decisions counts requests by what was decided: admitted, refused,
	// unauthenticated, unavailable, overloaded, gone, failed.
	Decisions map[string]int64 `json:"decisions"`
	Providers []Provider       `json:"providers"`
}

// Store is the state of Redis as this replica sees it.
type Store struct {
	Usable bool      `json:"usable"`
	State  string    `json:"state"`
	Since  time.Time `json:"since,omitzero"`
	Mode   string    `json:"mode"` // embedded, standalone, sentinel or cluster
}

// Fleet is what gossip tells.
type Fleet struct {
	Members  int      `json:"members"`
	Fresh    bool     `json:"fresh"`
	AgeMS    int64    `json:"age_ms"` // of the oldest news of any member
	Replicas []Member `json:"replicas"`
}

// Member is one replica of the fleet, this one first.
type Member struct {
	Name     string `json:"name"`
	Self     bool   `json:"self"`
	Build    string `json:"build"`
	Config   string `json:"config"`
	InFlight int64  `json:"in_flight"`
	Waiting  int    `json:"waiting"`
}

// Provider is the account behind an upstream that has a throttle.
type Provider struct {
	Upstream string `json:"upstream"`
	Model    string `json:"model"` // its name if it is configured, else its hashed id; empty: none named
	// State is open, paused, overloaded or stopped.
	State   string  `json:"state"`
	UntilMS int64   `json:"until_ms"` // to the end of a pause; 0: none
	Waiting int     `json:"waiting"`  // interactive requests that wait for it here
	Batch   int     `json:"batch"`    // batch requests that do
	Quotas  []Quota `json:"quotas"`
}

// Quota is one of a provider's limits, as last told by it.
type Quota struct {
	Unit     string  `json:"unit"`
	WindowMS int64   `json:"window_ms"` // 0: not said
	Limit    int64   `json:"limit"`
	Left     float64 `json:"left"`    // less what is under way here
	Reserve  float64 `json:"reserve"` // of Limit, which batch requests leave to the others
	AgeMS    int64   `json:"age_ms"`
}

// Tenants are the parties that fairness is between, the busiest first.
type Tenants struct {
	List    []Tenant `json:"list"`
	Counted int      `json:"counted"` // tenants known here; List may be fewer
}

// Tenant is one of them. Counters begin when the process does.
type Tenant struct {
	ID        string  `json:"id"`             // hashed
	Name      string  `json:"name,omitempty"` // as configured
	Dimension string  `json:"dimension"`
	Weight    float64 `json:"weight"`
	// Entitled and Received are costs. Where tenants compete, both are those of
	// the whole fleet as far as gossip tells; other requests are counted here
	// alone, and are as many as their tenant was entitled to.
	Entitled    float64          `json:"entitled"`
	Received    float64          `json:"received"`
	Contended   bool             `json:"contended"` // has it ever competed
	Waiting     int              `json:"waiting"`   // here
	Elsewhere   int              `json:"waiting_elsewhere"`
	Admitted    uint64           `json:"admitted"` // here
	Refused     uint64           `json:"refused"`  // here
	RefusedBy   map[string]int64 `json:"refused_by"`
	IdleSeconds float64          `json:"idle_s"` // since it last asked here
}

// Queues are the wait lines of this replica, the longest first.
type Queues struct {
	Enabled    bool   `json:"enabled"`
	Scope      string `json:"scope"` // of fairness: replica, gossip or exact
	Discipline string `json:"discipline"`
	Waiting    int    `json:"waiting"`
	Most       int    `json:"max_waiting"`
	Asking     int    `json:"asking"`
	MostAsking int    `json:"max_asking"`
	Lines      []Line `json:"lines"`
}

// Line is the wait line of one exhausted limit.
type Line struct {
	Dimension string       `json:"dimension"`
	ID        string       `json:"id"`
	Name      string       `json:"name,omitempty"`
	Waiting   int          `json:"waiting"`
	Elsewhere int          `json:"waiting_elsewhere"`
	Asking    int          `json:"asking"`
	RestsMS   int64        `json:"rests_ms"`
	SpacingMS float64      `json:"spacing_ms"` // between grants; 0: unknown
	Tenants   []LineTenant `json:"tenants"`
}

// LineTenant is one tenant's part of a line here.
type LineTenant struct {
	ID       string  `json:"id"`
	Name     string  `json:"name,omitempty"`
	Weight   float64 `json:"weight"`
	Waiting  int     `json:"waiting"`
	Position int     `json:"position"` // of its first waiter, from 1
	Scope    string  `json:"scope"`    // of the position: replica or fleet
	WaitedMS int64   `json:"waited_ms"`
}

// Agents are the backends with slots.
type Agents struct {
	List []Agent `json:"list"`
}

// Agent is one of them.
type Agent struct {
	Name    string   `json:"name"`
	Slots   int      `json:"slots"`
	Here    int      `json:"held_here"`
	Fleet   int      `json:"held_fleet"` // as last known, Here included
	Waiting int      `json:"waiting"`    // here
	Healthy bool     `json:"healthy"`
	Models  []string `json:"models"`
	Tags    []string `json:"tags"`
}

// Refusals are the last ones, the newest first.
type Refusals struct {
	Total uint64    `json:"total"` // ever
	List  []Refusal `json:"list"`
}

// Refusal is one request that was not served.
type Refusal struct {
	Number    uint64    `json:"number"` // from 1, in the order in which they happened
	At        time.Time `json:"at"`
	Status    int       `json:"status"`
	Code      string    `json:"code"`
	Reason    string    `json:"reason,omitempty"`
	LimitType string    `json:"limit_type,omitempty"`
	Dimension string    `json:"dimension,omitempty"` // of the tenant
	Tenant    string    `json:"tenant,omitempty"`    // hashed
	Name      string    `json:"tenant_name,omitempty"`
	Model     string    `json:"model,omitempty"` // its name if it is configured, else its hashed id
	// RetryAfterMS is what the caller was told; 0: nothing, -1: never.
	RetryAfterMS int64 `json:"retry_after_ms"`
	WaitedMS     int64 `json:"waited_ms"`
}

// Session is who is signed in, as /api/session tells.
type Session struct {
	// Kind is operator, for whoever holds the admin token or needs none, or key,
	// for an API key, which sees its workspaces alone.
	Kind string `json:"kind"`
	Key  string `json:"key,omitempty"` // its id
	// Token says that this listener asks for a token.
	Token   bool   `json:"token_needed"`
	Replica string `json:"replica"`
}
