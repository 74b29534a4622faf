package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// choreLease is how long a batch that is looked at is left to who does: several
	// times what one part takes.
	choreLease = 10 * time.Second
	// again is when a batch is looked at once more whose last jobs still run.
	again = time.Second
	// voided is how many jobs one call ends.
	voided = 400
	// maxMistakes is how many of a file's mistakes are told.
	maxMistakes = 100
)

// chores looks at batches until the service closes: it checks new ones, and ends the
// jobs of those whose time is up or that were cancelled. Draining does not stop it at
// once, but before the next batch.
func (s *Service) chores() {
	for !s.draining.Load() {
		b, wait, err := s.store.work(s.ctx, choreLease)
		if err != nil { // claims tell of it, too
			wait = outage
			s.log.Debug("batch: the store cannot say what there is to do", "error", err)
		}
		if b != nil {
			if err := s.attend(b); err != nil {
				s.log.Warn("batch: a batch was left to be looked at again", "batch", b["id"], "error", err)
			}
			continue
		}
		if !s.pause(max(min(wait, idle), 10*time.Millisecond), s.look) {
			return
		}
	}
}

// attend does what a batch needs.
func (s *Service) attend(b record) error {
	switch b["status"] {
	case "validating":
		return s.validate(b)
	case "cancelling":
		return s.finish(b, "cancelled", "batch_cancelled", "The batch was cancelled before this request ran.")
	default:
		return s.finish(b, "expired", "batch_expired", "This request could not be executed before the completion window expired.")
	}
}

// validate reads all lines of a batch, and starts it, or lets it fail with what is
// wrong. Costs go to the store part by part; one that stops half-way is followed by
// another that begins anew.
func (s *Service) validate(b record) error {
	id, total := b["id"], b.int("total")
	seen := make(map[string]bool, total)
	var wrong []lineError
	mistake := func(line int64, code, message string) {
		if len(wrong) < maxMistakes {
			wrong = append(wrong, lineError{Code: code, Message: message, Line: &line})
		}
	}
	for next := int64(0); next < total; {
		lines, err := s.store.lines(s.ctx, b["file"], next, readBytes)
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			return s.fail(id, []lineError{{Code: "file_not_found", Message: "The input file is there no more."}})
		}
		var costs strings.Builder
		for i, line := range lines {
			var in inputLine
			code, message := in.check(line, b["endpoint"])
			if code == "" && seen[in.CustomID] {
				code, message = "duplicate_custom_id", "The custom_id is that of an earlier line."
			}
			if code != "" {
				mistake(next+int64(i)+1, code, message)
			}
			seen[in.CustomID] = true
			fmt.Fprintf(&costs, "%010d", min(s.performer.Price(b["endpoint"], in.Body), maxCost))
		}
		if ok, err := s.store.check(s.ctx, id, next, costs.String(), "", "", choreLease); err != nil || !ok {
			return err
		}
		next += int64(len(lines))
	}
	if len(wrong) > 0 {
		return s.fail(id, wrong)
	}
	if _, err := s.store.check(s.ctx, id, 0, "", "start", "", choreLease); err != nil {
		return err
	}
	wake(s.poke)
	return nil
}

// maxCost is the largest estimate that has room in the store: 10 digits.
const maxCost = 9_999_999_999

// fail ends a batch of which no job will run.
func (s *Service) fail(id string, wrong []lineError) error {
	list, err := json.Marshal(wrong)
	if err != nil {
		return err
	}
	_, err = s.store.check(s.ctx, id, 0, "", "fail", string(list), choreLease)
	return err
}

// errEnded stops a walk over a batch that has ended meanwhile.
var errEnded = errors.New("batch: it has ended")

// finish gives every job of a batch an error that has no result and does not run. Those
// that run are waited for: it is looked at again.
func (s *Service) finish(b record, ending, code, message string) error {
	id, total := b["id"], b.int("total")
	for next := int64(0); next < total; next += voided {
		err := s.voidPart(b, next, min(voided, total-next), ending, func(number int64, customID string) string {
			return failedLine(id, number, customID, code, message)
		})
		if errors.Is(err, errEnded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	_, err := s.store.void(s.ctx, id, ending, again, nil)
	return err
}

// voidPart ends n jobs from first on, a multiple of 8.
func (s *Service) voidPart(b record, first, n int64, ending string, word func(number int64, customID string) string) error {
	ended, err := s.store.ended(s.ctx, b["id"], first, int(n))
	if err != nil {
		return err
	}
	jobs := map[int64]string{}
	for next := first; next < first+n; {
		if ended(next) {
			next++
			continue
		}
		lines, err := s.store.lines(s.ctx, b["file"], next, readBytes)
		if err != nil || len(lines) == 0 {
			return errors.Join(err, context.Cause(s.ctx))
		}
		for i, line := range lines {
			if at := next + int64(i); at < first+n && !ended(at) {
				var in inputLine
				_ = json.Unmarshal([]byte(line), &in) // checked before it began
				jobs[at] = word(at, in.CustomID)
			}
		}
		next += int64(len(lines))
	}
	left, err := s.store.void(s.ctx, b["id"], ending, choreLease, jobs)
	switch {
	case err != nil:
		return err
	case left < 0:
		return errEnded
	}
	s.metrics.count(ending, len(jobs))
	return nil
}
