package rls_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/gateway/rls"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// client is Envoy's side of a service of its own.
type client struct {
	pb.RateLimitServiceClient
	health healthpb.HealthClient
	t      testing.TB
}

// hourly refills so slowly that a test sees what was taken and nothing else.
func hourly(n int64) *limiter.Rate { return &limiter.Rate{Limit: n, Per: time.Hour, Burst: n} }

var limits = map[limiter.Dimension]limiter.Limit{
	limiter.APIKey: {Rule: limiter.Rule{Requests: hourly(3)}},
	limiter.User:   {Rule: limiter.Rule{Requests: hourly(5), Tokens: hourly(100)}},
	limiter.Client: {Rule: limiter.Rule{Requests: hourly(2)}},
}

var meanings = rls.Options{Meaning: rls.Meaning{
	Identities: []rls.Identity{
		{Key: "api_key", Dimension: limiter.APIKey},
		{Key: "user", Dimension: limiter.User},
		{Key: "user_tokens", Dimension: limiter.User, Charge: rls.ChargeTokens},
		{Key: "user_spent", Dimension: limiter.User, Charge: rls.ChargeSpent},
		{Key: "remote_address", Dimension: limiter.Client},
	},
	Limits: []rls.Limit{
		{Domain: "edge", Entries: []rls.Entry{{Key: "generic_key", Value: "slow"}}, Rate: *hourly(1)},
		{Entries: []rls.Entry{{Key: "path"}}, Rate: *hourly(2)},
	},
}}

// serve starts a service on loopback over store, nil for one in memory.
func serve(t testing.TB, store limiter.Store, cfg limiter.Config, o rls.Options) *client {
	t.Helper()
	if store == nil {
		store = memstore.New().Replica(memstore.Options{})
		t.Cleanup(func() { store.Close(context.Background()) })
	}
	l, err := limiter.New(cfg, store, fleet.Solo("test"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := rls.New(l, o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		s.Close(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
		l.Close()
	})
	return &client{pb.NewRateLimitServiceClient(conn), healthpb.NewHealthClient(conn), t}
}

// entry is a descriptor of one entry, or of more: key, value, key, value.
func entry(pairs ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func hits(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func back(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(d, n)
}

func (c *client) ask(list ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
	c.t.Helper()
	out, err := c.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: "edge", Descriptors: list})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(out.Statuses) != len(list) {
		c.t.Fatalf("%d statuses for %d descriptors", len(out.Statuses), len(list))
	}
	return out
}

// codes writes the overall code and those of the descriptors, O or X each.
func outcome(r *pb.RateLimitResponse) string {
	letter := map[pb.RateLimitResponse_Code]string{pb.RateLimitResponse_OK: "O", pb.RateLimitResponse_OVER_LIMIT: "X"}
	text := letter[r.OverallCode] + ":"
	for _, s := range r.Statuses {
		text += letter[s.Code]
	}
	return text
}

func header(list []*core.HeaderValue, name string) string {
	for _, h := range list {
		if strings.EqualFold(h.Key, name) {
			return h.Value
		}
	}
	return ""
}

// step is one question and what it has to be answered.
type step struct {
	ask  []*common.RateLimitDescriptor
	want string
}

func list(d ...*common.RateLimitDescriptor) []*common.RateLimitDescriptor { return d }

func TestDescriptors(t *testing.T) {
	own := func(n uint32) *common.RateLimitDescriptor {
		d := entry("user", "u")
		d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: typev3.RateLimitUnit_DAY}
		return d
	}
	for name, steps := range map[string][]step{
		"a dimension": {
			{list(entry("api_key", "a")), "O:O"}, {list(entry("api_key", "a")), "O:O"}, {list(entry("api_key", "a")), "O:O"},
			{list(entry("api_key", "a")), "X:X"}, {list(entry("api_key", "b")), "O:O"},
		},
		"all or nothing": {
			{list(entry("api_key", "a"), entry("user", "u")), "O:OO"},
			{list(hits(entry("api_key", "a"), 3), hits(entry("user", "u"), 4)), "X:XO"},
			{list(hits(entry("user", "u"), 4)), "O:O"}, // the refusal above took none of it
			{list(entry("user", "u")), "X:X"},
		},
		"two identities in one descriptor": {
			{list(entry("api_key", "a", "user", "u")), "O:O"},
			{list(hits(entry("api_key", "a"), 2)), "O:O"},
			{list(entry("api_key", "a", "user", "u")), "X:X"},
			{list(hits(entry("user", "u"), 4)), "O:O"},
		},
		"nothing limits it":  {{list(hits(entry("color", "blue"), 1<<30)), "O:O"}, {list(entry("color", "blue"), entry("color", "red")), "O:OO"}},
		"configured, exact":  {{list(entry("generic_key", "slow")), "O:O"}, {list(entry("generic_key", "slow")), "X:X"}, {list(entry("generic_key", "fast")), "O:O"}},
		"configured, any":    {{list(hits(entry("path", "/a"), 2)), "O:O"}, {list(entry("path", "/a")), "X:X"}, {list(entry("path", "/b")), "O:O"}},
		"other entries":      {{list(entry("path", "/a", "path", "/a")), "O:O"}, {list(hits(entry("path", "/a"), 2)), "O:O"}},
		"a limit of its own": {{list(hits(own(7), 7)), "O:O"}, {list(own(7)), "X:X"}, {list(hits(entry("user", "u"), 5)), "O:O"}},
		"its own blocks":     {{list(own(0)), "X:X"}},
		"too much for ever":  {{list(hits(entry("user", "u"), 6)), "X:X"}, {list(hits(entry("user", "u"), 5)), "O:O"}},
		"zero looks":         {{list(hits(entry("user", "u"), 5)), "O:O"}, {list(hits(entry("user", "u"), 0)), "O:O"}, {list(entry("user", "u")), "X:X"}},
		"tokens":             {{list(hits(entry("user_tokens", "u"), 100)), "O:O"}, {list(hits(entry("user_tokens", "u"), 1)), "X:X"}, {list(hits(entry("user", "u"), 5)), "O:O"}},
		"one client": {
			{list(entry("remote_address", "10.0.0.1")), "O:O"}, {list(entry("remote_address", "10.0.0.1:4711")), "O:O"},
			{list(entry("remote_address", "10.0.0.1")), "X:X"},
			{list(entry("remote_address", "2001:db8::1")), "O:O"}, {list(entry("remote_address", "2001:db8::2")), "O:O"},
			{list(entry("remote_address", "2001:db8::3")), "X:X"}, {list(entry("remote_address", "2001:db8:0:1::3")), "O:O"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, nil, limiter.Config{Limits: limits}, meanings)
			for i, s := range steps {
				if got := outcome(c.ask(s.ask...)); got != s.want {
					t.Errorf("step %d: %s, want %s", i+1, got, s.want)
				}
			}
		})
	}
}

// eventually repeats a question until it is answered so: settlements arrive
// after the answer to the question that made them.
func (c *client) eventually(want string, d *common.RateLimitDescriptor) *pb.RateLimitResponse {
	c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		r := c.ask(d)
		if got := outcome(r); got == want {
			return r
		} else if time.Now().After(deadline) {
			c.t.Fatalf("still %s, want %s", got, want)
		}
	}
}

func TestGiveBack(t *testing.T) {
	c := serve(t, nil, limiter.Config{Limits: limits}, meanings)
	c.ask(hits(entry("user_tokens", "u"), 100))
	if got := outcome(c.ask(hits(entry("user_tokens", "u"), 60))); got != "X:X" {
		t.Fatalf("over the budget: %s", got)
	}
	if got := outcome(c.ask(back(entry("user_tokens", "u"), 60))); got != "O:O" {
		t.Errorf("giving back: %s", got)
	}
	c.eventually("O:O", hits(entry("user_tokens", "u"), 60))
	if got := outcome(c.ask(hits(entry("user_tokens", "u"), 1))); got != "X:X" {
		t.Errorf("after 60 given back and taken again: %s", got)
	}
}

func TestSpentIsChargedInAnyCase(t *testing.T) {
	c := serve(t, nil, limiter.Config{Limits: limits}, meanings)
	if got := outcome(c.ask(hits(entry("user_spent", "u"), 130))); got != "O:O" {
		t.Errorf("130 of 100 spent: %s, want OK once", got)
	}
	r := c.eventually("X:X", hits(entry("user_tokens", "u"), 0))
	if wait := r.Statuses[0].GetDurationUntilReset(); wait != nil {
		t.Errorf("the user's level is told: %v", wait)
	}
	if header(r.ResponseHeadersToAdd, "Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestAnswerTells(t *testing.T) {
	c := serve(t, nil, limiter.Config{Limits: limits}, meanings)
	first := c.ask(hits(entry("api_key", "a"), 2))
	s := first.Statuses[0]
	if l := s.CurrentLimit; l.GetRequestsPerUnit() != 3 || l.GetUnit() != pb.RateLimitResponse_RateLimit_HOUR || l.GetName() != "api_key" {
		t.Errorf("limit %v, want 3 per hour", l)
	}
	if s.LimitRemaining != 1 || s.DurationUntilReset.AsDuration() < 39*time.Minute || s.DurationUntilReset.AsDuration() > 40*time.Minute {
		t.Errorf("%d left, full in %v; want 1 and 40m", s.LimitRemaining, s.DurationUntilReset.AsDuration())
	}
	if got := header(first.ResponseHeadersToAdd, "x-ratelimit-remaining-requests"); got != "1" {
		t.Errorf("x-ratelimit-remaining-requests %q", got)
	}
	if got := header(first.ResponseHeadersToAdd, "Retry-After"); got != "" {
		t.Errorf("Retry-After %q of an admitted request", got)
	}

	second := c.ask(hits(entry("api_key", "a"), 3))
	h := second.ResponseHeadersToAdd
	if got := header(h, "x-headway-limit-type"); got != "api_key" {
		t.Errorf("limit type %q", got)
	}
	retry, err := time.ParseDuration(header(h, "Retry-After") + "s")
	if err != nil || retry < 39*time.Minute || retry > 45*time.Minute {
		t.Errorf("Retry-After %v, %v; want 40 minutes and up to a tenth more", retry, err)
	}
	if s := second.Statuses[0]; s.LimitRemaining != 0 || s.DurationUntilReset.AsDuration() > 40*time.Minute {
		t.Errorf("%d left, for %v", s.LimitRemaining, s.DurationUntilReset.AsDuration())
	}
	never := c.ask(hits(entry("api_key", "a"), 4))
	if got := header(never.ResponseHeadersToAdd, "x-should-retry"); got != "false" || header(never.ResponseHeadersToAdd, "Retry-After") != "" {
		t.Errorf("never possible: x-should-retry %q", got)
	}
}

func TestSharedLevelsAreWithheld(t *testing.T) {
	for _, all := range []bool{false, true} {
		o := meanings
		o.AllLevels = all
		c := serve(t, nil, limiter.Config{Limits: limits}, o)
		if told := c.ask(entry("user", "u")).Statuses[0].CurrentLimit != nil; told != all {
			t.Errorf("with all levels %v: the user's limit is told: %v", all, told)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, test := range []struct {
		per   time.Duration
		limit int64
		want  string
	}{
		{time.Second, 5, "requests_per_unit:5 unit:SECOND"},
		{30 * time.Second, 5, "requests_per_unit:5 unit:SECOND unit_multiplier:{value:30}"},
		{time.Minute, 5, "requests_per_unit:5 unit:MINUTE"},
		{90 * time.Minute, 5, "requests_per_unit:5 unit:MINUTE unit_multiplier:{value:90}"},
		{48 * time.Hour, 5, "requests_per_unit:5 unit:DAY unit_multiplier:{value:2}"},
		{100 * time.Millisecond, 5, "requests_per_unit:50 unit:SECOND"},
		{time.Hour, 8_000_000_000, "requests_per_unit:4294967295 unit:HOUR"},
	} {
		rate := limiter.Rate{Limit: test.limit, Per: test.per, Burst: test.limit}
		c := serve(t, nil, limiter.Config{}, rls.Options{Meaning: rls.Meaning{Limits: []rls.Limit{{Entries: []rls.Entry{{Key: "path"}}, Rate: rate}}}})
		got := c.ask(entry("path", "/")).Statuses[0].CurrentLimit
		got.Name = ""
		if text := strings.Join(strings.Fields(got.String()), " "); text != test.want {
			t.Errorf("%d per %v: %s, want %s", test.limit, test.per, text, test.want)
		}
	}
}

func TestBadQuestions(t *testing.T) {
	c := serve(t, nil, limiter.Config{Limits: limits}, meanings)
	unit := entry("user", "u")
	unit.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}
	century := entry("user", "u")
	century.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: typev3.RateLimitUnit_YEAR, UnitMultiplier: wrapperspb.UInt32(101)}
	many := make([]*common.RateLimitDescriptor, 65)
	for name, q := range map[string]*pb.RateLimitRequest{
		"no domain":      {Descriptors: list(entry("user", "u"))},
		"no descriptors": {Domain: "edge"},
		"too many":       {Domain: "edge", Descriptors: many},
		"no unit":        {Domain: "edge", Descriptors: list(unit)},
		"long period":    {Domain: "edge", Descriptors: list(century)},
		"absurd hits":    {Domain: "edge", Descriptors: list(hits(entry("user", "u"), 1<<63))},
	} {
		_, err := c.ShouldRateLimit(context.Background(), q)
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", name, err)
		}
	}
}

// deaf is a store that never decides.
type deaf struct{ limiter.Store }

func (deaf) Admit(context.Context, limiter.Take) (limiter.Verdict, error) {
	return limiter.Verdict{}, limiter.ErrUnavailable
}

func TestOutage(t *testing.T) {
	closed := serve(t, deaf{}, limiter.Config{Limits: limits}, meanings)
	_, err := closed.ShouldRateLimit(context.Background(), &pb.RateLimitRequest{Domain: "edge", Descriptors: list(entry("user", "u"))})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("fail_closed: %v, want Unavailable", err)
	}
	open := serve(t, deaf{}, limiter.Config{Limits: limits, DefaultOutage: limiter.FailOpen}, meanings)
	r := open.ask(entry("user", "u"))
	if outcome(r) != "O:O" || header(r.ResponseHeadersToAdd, "x-headway-degraded") != "open" {
		t.Errorf("fail_open: %v", r)
	}
}

func TestHealth(t *testing.T) {
	for _, ready := range []bool{true, false} {
		o := meanings
		o.Ready = func() bool { return ready }
		c := serve(t, nil, limiter.Config{}, o)
		for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService"} {
			r, err := c.health.Check(context.Background(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || (r.Status == healthpb.HealthCheckResponse_SERVING) != ready {
				t.Errorf("ready %v, service %q: %v, %v", ready, service, r, err)
			}
		}
	}
}
