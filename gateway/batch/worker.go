package batch

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/workspace"
	"github.com/headway-limiter/headway/limiter"
)

const (
	// idle is how long a replica waits before it asks for jobs again that it could
	// not know of.
	idle = 500 * time.Millisecond
	// outage is how long it waits after an error of the store.
	outage = time.Second
	// hold is how long a job may wait in this replica for a budget or a provider. Then
	// it goes back: the slot is for a job that can run. It is longer than the gaps of a
	// provider's pace, and short beside the wait for a budget.
	hold = time.Second
	// waiting is how many jobs that were claimed may wait here for a provider at once.
	// Their turns have come, so they run before whoever comes to the fleet meanwhile, and
	// one replica's go by another's: the more wait, the less is the order that of turns.
	waiting = 4
	// Bounds of how long a job that went back rests.
	minRest, maxRest = 200 * time.Millisecond, 60 * time.Second
	// maxBroken is how often a job runs again whose attempt may have been work for
	// the upstream: a gateway error, a timeout.
	maxBroken = 3
)

// limiterID keeps the conversion of what the store has in one place.
func limiterID(text string) limiter.ID { return limiter.ID(text) }

// claims fills free slots with jobs until draining. It asks for no more than it can
// start at once.
func (s *Service) claims() {
	for out := false; ; {
		free, ok := s.take()
		if !ok {
			return
		}
		jobs, wait, lost, err := s.store.claim(s.ctx, free, s.lease)
		s.metrics.lost.Add(float64(lost))
		if err != nil && !out {
			s.log.Warn("batch: jobs cannot be claimed for now", "error", err)
		}
		if wait, out = min(wait, idle), err != nil; out {
			wait = outage
		}
		for range free - len(jobs) {
			<-s.slots
			<-s.hall
		}
		s.adopt(jobs)
		for _, j := range jobs {
			s.running.Go(func() {
				defer func() { <-s.slots }()
				s.work(j)
			})
		}
		if len(jobs) < free && !s.pause(max(wait, 10*time.Millisecond), s.poke) {
			return
		}
	}
}

// take waits until a job may be claimed and returns how many may; false: draining.
func (s *Service) take() (n int, ok bool) {
	for ; ; n++ {
		if !s.enter(s.slots, n == 0) {
			return n, n > 0
		}
		if !s.enter(s.hall, n == 0) {
			<-s.slots
			return n, n > 0
		}
	}
}

// enter takes a place of a room, if need be when there is one; false: there is none, or
// draining.
func (s *Service) enter(room chan struct{}, wait bool) bool {
	if !wait {
		select {
		case room <- struct{}{}:
			return true
		default:
			return false
		}
	}
	select {
	case room <- struct{}{}:
		return true
	case <-s.drained:
		return false
	}
}

// adopt notes claims, to be renewed.
func (s *Service) adopt(jobs []*job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		s.mine[j] = true
	}
	s.metrics.count("claimed", len(jobs))
	s.metrics.running.Set(float64(len(s.mine)))
}

// leave forgets a claim.
func (s *Service) leave(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mine, j)
	s.metrics.running.Set(float64(len(s.mine)))
}

// oldest is how long the oldest claim here has been held.
func (s *Service) oldest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var most time.Duration
	for j := range s.mine {
		most = max(most, time.Since(j.claimed))
	}
	return most
}

// renewals keeps claims alive. One that is lost runs on: its result counts if it is
// the first.
func (s *Service) renewals() {
	tick := time.NewTicker(s.lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		var held []*job
		s.mu.Lock()
		for j, ours := range s.mine {
			if ours {
				held = append(held, j)
			}
		}
		s.mu.Unlock()
		if len(held) == 0 {
			continue
		}
		lost, err := s.store.renew(s.ctx, held, s.lease)
		if err != nil {
			s.log.Warn("batch: leases cannot be renewed", "error", err)
			continue
		}
		s.mu.Lock()
		for _, j := range lost {
			if s.mine[j] { // it may have ended meanwhile
				s.mine[j] = false
				s.metrics.lost.Inc()
			}
		}
		s.mu.Unlock()
	}
}

// work runs a job once, and then records what came of it or gives it back.
func (s *Service) work(j *job) {
	defer s.leave(j)
	started := sync.OnceFunc(func() { <-s.hall })
	defer started()
	ctx, cancel := context.WithDeadline(gateway.OnStart(s.jobCtx, started), j.deadline)
	defer cancel()
	switch err := s.mayKeep(j.owner); {
	case errors.Is(err, workspace.ErrRetention): // since it was submitted
		s.record(j, "e", failedLine(j.batch, j.number, j.customID, "zero_data_retention", "The workspace keeps no data, so there is no result."), -1)
		return
	case err != nil: // it will be known soon
		s.giveBack(j, 0, s.rest(j, nil))
		return
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, j.owner.Place+j.endpoint, bytes.NewReader(j.body))
	if err != nil {
		s.record(j, "e", failedLine(j.batch, j.number, j.customID, "invalid_endpoint", "The endpoint is not a path."), -1)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Headway-Priority", "batch")
	r.Header.Set("X-Headway-Deadline-Ms", millis(min(hold, time.Until(j.deadline))))
	r.Header.Set("X-Request-Id", resultID(j.batch, j.number)+"-"+number(j.claim))
	p, err := s.performer.Perform(ctx, j.owner, r)
	switch {
	case errors.Is(err, gateway.ErrTooLarge):
		s.record(j, "e", j.tooLarge(), -1)
	case err != nil && ctx.Err() == nil && j.backs >= maxBroken:
		s.record(j, "e", failedLine(j.batch, j.number, j.customID, "upstream_broke", "The response broke off in every attempt."), -1)
	case err != nil: // at the deadline, whoever ends the batch says so
		s.giveBack(j, 0, s.rest(j, nil))
	default:
		s.settle(j, p)
	}
}

// settle decides whether an answer is the job's result.
func (s *Service) settle(j *job, p gateway.Performed) {
	again, ours := transient(p, j.backs)
	switch {
	case again && ours:
		wait := s.rest(j, p.Header)
		s.giveBack(j, wait, wait)
	case again:
		s.giveBack(j, 0, s.rest(j, p.Header))
	case p.Status < http.StatusMultipleChoices:
		s.recordAnswer(j, "o", p, p.Tokens)
	default:
		s.recordAnswer(j, "e", p, 1) // a refusal costs a turn and no tokens
	}
}

// maxResult bounds a line of results, in bytes: a text that is no JSON grows when it
// is written as such.
const maxResult = gateway.MaxPerformed + 64<<10

// recordAnswer records a response, if it can be kept.
func (s *Service) recordAnswer(j *job, kind string, p gateway.Performed, cost int64) {
	line := j.answeredLine(p)
	if len(line) > maxResult {
		kind, line = "e", j.tooLarge()
	}
	s.record(j, kind, line, cost)
}

// transient reports whether a job is to run again after an answer, and whether others
// of its tenant would now be answered the same.
func transient(p gateway.Performed, backs int64) (again, all bool) {
	if p.Header.Get("X-Should-Retry") == "false" {
		return false, false
	}
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		return !terminal(p.Body), true
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusRequestTimeout:
		return backs < maxBroken, false
	}
	return false, false
}

// terminal reports whether a refusal ends only when somebody pays.
func terminal(body []byte) bool {
	for _, code := range [...]string{`"insufficient_quota"`, `"credit_balance_exhausted"`, `"billing_hard_limit_reached"`} {
		if bytes.Contains(body, []byte(code)) {
			return true
		}
	}
	return false
}

// rest is how long a job waits before it is claimed again: as the answer says, or
// twice as long each time.
func (s *Service) rest(j *job, h http.Header) time.Duration {
	wait := minRest << min(j.backs, 12)
	if ms, err := strconv.ParseInt(h.Get("Retry-After-Ms"), 10, 64); err == nil {
		wait = time.Duration(min(max(ms, 0), maxRest.Milliseconds())) * time.Millisecond
	} else if secs, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil {
		wait = time.Duration(min(max(secs, 0), int64(maxRest/time.Second))) * time.Second
	}
	wait = min(max(wait, minRest), maxRest)
	return wait + rand.N(wait/10+1) // those that went back together do not return together
}

// record puts a result into the store, and does not give up while this process
// lives: the work is done, and the slot is not free before it is known.
func (s *Service) record(j *job, kind, line string, cost int64) {
	for wait := outage / 10; ; wait = min(2*wait, outage) {
		said, err := s.store.done(s.ctx, j, kind, line, cost)
		switch {
		case err == nil && said == doneRecorded:
			s.metrics.count(map[string]string{"o": "completed", "e": "failed"}[kind], 1)
			return
		case err == nil:
			s.metrics.count("dropped", 1)
			return
		}
		s.log.Warn("batch: a result cannot be recorded yet", "batch", j.batch, "job", j.number, "error", err)
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// giveBack lets others claim a job after rest, and any of its tenant after pause. If
// the store cannot be told, the lease ends by itself.
func (s *Service) giveBack(j *job, pause, rest time.Duration) {
	if s.jobCtx.Err() != nil {
		pause, rest = 0, 0 // another replica can take it at once
	}
	ctx, cancel := context.WithTimeout(s.ctx, outage)
	defer cancel()
	ours, err := s.store.back(ctx, j, rest, pause)
	switch {
	case err != nil:
		s.log.Warn("batch: a job cannot be given back; its lease will end", "batch", j.batch, "job", j.number, "error", err)
	case ours:
		s.metrics.count("returned", 1)
	}
}
