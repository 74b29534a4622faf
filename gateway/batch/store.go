package batch

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/headway-limiter/headway/lua"
)

// root stands in front of every key; its tag makes all of them of one slot.
const root = "hw:{hw-jobs}:"

// Redis runs scripts about documents. All errors but those of ctx mean that
// nobody knows whether the script ran.
type Redis interface {
	Eval(ctx context.Context, script lua.Script, keys []string, args ...string) ([]any, error)
}

// store words calls of the scripts in lua/job_*.lua, whose headers say what each
// means. It is safe for concurrent use.
type store struct{ redis Redis }

// run calls a script.
func (s store) run(ctx context.Context, script lua.Script, args ...string) (reply, error) {
	r, err := s.redis.Eval(ctx, script, []string{root}, args...)
	if err == nil && len(r) == 0 && script.Name != lua.JobRead.Name {
		err = fmt.Errorf("batch: %s: empty reply", script.Name)
	}
	return r, err
}

// reply is what a script answers. Values that are not of the kind asked for are
// zero: a script of another version must not take a replica down.
type reply []any

func (r reply) text(i int) string {
	if i >= len(r) {
		return ""
	}
	t, _ := r[i].(string)
	return t
}

func (r reply) int(i int) int64 {
	if i >= len(r) {
		return 0
	}
	if n, ok := r[i].(int64); ok {
		return n
	}
	n, _ := strconv.ParseInt(r.text(i), 10, 64)
	return n
}

func (r reply) list(i int) reply {
	if i >= len(r) {
		return nil
	}
	l, _ := r[i].([]any)
	return l
}

// record reads fields and values in turn, from the i-th on.
func (r reply) record(i int) record {
	out := record{}
	for ; i+1 < len(r); i += 2 {
		out[r.text(i)] = r.text(i + 1)
	}
	return out
}

// record is a file or batch as the store has it.
type record map[string]string

// int reads a number; an absent field is 0.
func (r record) int(name string) int64 {
	n, _ := strconv.ParseInt(r[name], 10, 64)
	return n
}

// number writes one.
func number[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// millis writes a span in ms.
func millis(d time.Duration) string { return number(d.Milliseconds()) }

// put adds lines to a file (see lua/job_put.lua). bytes < 0: there is more to come.
func (s store) put(ctx context.Context, f upload, first int64, lines []string, bytes int64) (string, error) {
	size := ""
	if bytes >= 0 {
		size = number(bytes)
	}
	args := []string{f.tenant, f.id, number(first), millis(f.life), number(f.most), size, f.name}
	r, err := s.run(ctx, lua.JobPut, append(args, lines...)...)
	return r.text(0), err
}

// drop deletes a file.
func (s store) drop(ctx context.Context, tenant, file string) (string, error) {
	r, err := s.run(ctx, lua.JobDrop, tenant, file)
	return r.text(0), err
}

// get returns a file (f) or batch (b) of a tenant; nil: it has none of that id.
func (s store) get(ctx context.Context, kind, tenant, id string) (record, error) {
	r, err := s.run(ctx, lua.JobRead, kind, id)
	out := r.record(0)
	if err != nil || out["tenant"] != tenant {
		return nil, err
	}
	return out, nil
}

// lines reads lines of a file from first on, at least one if there is one, and no
// further once there are so many bytes.
func (s store) lines(ctx context.Context, file string, first int64, bytes int) ([]string, error) {
	r, err := s.run(ctx, lua.JobRead, "l", file, number(first), number(bytes))
	out := make([]string, len(r))
	for i := range r {
		out[i] = r.text(i)
	}
	return out, err
}

// ended tells which of n jobs from first on, a multiple of 8, have a result.
func (s store) ended(ctx context.Context, batch string, first int64, n int) (func(i int64) bool, error) {
	r, err := s.run(ctx, lua.JobRead, "d", batch, number(first), number(n))
	bits := r.text(0)
	return func(i int64) bool {
		at := i - first
		return at/8 < int64(len(bits)) && bits[at/8]&(0x80>>(at%8)) != 0
	}, err
}

// page is a part of a list.
type page struct {
	kind, after, order, purpose string
	limit                       int
}

// list returns a page of a tenant's files or batches, with their ids as "id". ok is
// false if there is no such entry to go on from.
func (s store) list(ctx context.Context, tenant string, p page) (entries []record, more, ok bool, err error) {
	r, err := s.run(ctx, lua.JobList, tenant, p.kind, p.after, number(p.limit), p.order, p.purpose)
	if err != nil || r.int(0) < 0 {
		return nil, false, false, err
	}
	for i := 1; i < len(r); i++ {
		e := r.list(i).record(1)
		e["id"] = r.list(i).text(0)
		entries = append(entries, e)
	}
	return entries, r.int(0) == 1, true, nil
}

// work returns the batch that somebody has to look at, with its id as "id", and
// leaves it to the caller for a lease; nil: how long to wait until there may be one.
func (s store) work(ctx context.Context, lease time.Duration) (record, time.Duration, error) {
	r, err := s.run(ctx, lua.JobWork, millis(lease))
	if err != nil || r.int(0) != 0 {
		return nil, rest(r.int(0)), err
	}
	out := r.record(2)
	out["id"] = r.text(1)
	return out, 0, nil
}

// check tells what was found out about lines of a batch; false: it is not being
// checked any more.
func (s store) check(ctx context.Context, batch string, first int64, costs, verdict, errors string, lease time.Duration) (bool, error) {
	r, err := s.run(ctx, lua.JobCheck, batch, number(first), costs, verdict, errors, millis(lease))
	return r.int(0) == 1, err
}

// maxClaimed bounds the lines of one claim, in bytes: replies delay whoever comes
// behind them on the connection.
const maxClaimed = 1 << 20

// claim asks for up to n jobs. With none it returns how long to wait until there
// may be one. lost counts jobs whose replica was found dead.
func (s store) claim(ctx context.Context, n int, lease time.Duration) (jobs []*job, wait time.Duration, lost int64, err error) {
	r, err := s.run(ctx, lua.JobClaim, number(n), millis(lease), number(maxClaimed))
	if err != nil {
		return nil, 0, 0, err
	}
	for i := 2; i < len(r); i++ {
		jobs = append(jobs, newJob(r.list(i)))
	}
	return jobs, rest(r.int(0)), r.int(1), nil
}

// rest reads a wait in ms, where -1 is a long one.
func rest(ms int64) time.Duration {
	if ms < 0 {
		return time.Hour
	}
	return time.Duration(ms) * time.Millisecond
}

// renew prolongs leases and returns those that are lost.
func (s store) renew(ctx context.Context, jobs []*job, lease time.Duration) (lost []*job, err error) {
	args := []string{millis(lease)}
	for _, j := range jobs {
		args = append(args, j.batch+"/"+number(j.number), number(j.claim))
	}
	r, err := s.run(ctx, lua.JobRenew, args...)
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		if r.int(i) == 0 {
			lost = append(lost, j)
		}
	}
	return lost, nil
}

// Answers of done.
const (
	doneGone     = 0
	doneRecorded = 1
	doneBefore   = 2
)

// done records a result, a line of the file of that kind: o or e. cost < 0: it is
// not known what it cost.
func (s store) done(ctx context.Context, j *job, kind, line string, cost int64) (int64, error) {
	spent := ""
	if cost >= 0 {
		spent = number(max(cost, 1))
	}
	r, err := s.run(ctx, lua.JobDone, j.batch, number(j.number), number(j.claim), kind, line, spent)
	return r.int(0), err
}

// back returns a job for others to claim after rest, and any of its tenant after
// pause; false: the claim was over before.
func (s store) back(ctx context.Context, j *job, rest, pause time.Duration) (bool, error) {
	r, err := s.run(ctx, lua.JobBack, j.batch, number(j.number), number(j.claim), millis(rest), millis(pause))
	return r.int(0) == 1, err
}

// void gives jobs errors instead of results. left is how many have none yet, < 0
// if the batch has ended.
func (s store) void(ctx context.Context, batch, ending string, rest time.Duration, jobs map[int64]string) (left int64, err error) {
	args := []string{batch, ending, millis(rest)}
	for i, line := range jobs {
		args = append(args, number(i), line)
	}
	r, err := s.run(ctx, lua.JobVoid, args...)
	return r.int(0), err
}

// submit makes a batch; see lua/job_submit.lua for what it answers.
func (s store) submit(ctx context.Context, args []string) (reply, error) {
	r, err := s.run(ctx, lua.JobSubmit, args...)
	if err != nil { // once more: running twice is running once
		r, err = s.run(ctx, lua.JobSubmit, args...)
	}
	return r, err
}

// cancel ends a batch; see lua/job_cancel.lua for what it answers.
func (s store) cancel(ctx context.Context, tenant, batch string) (reply, error) {
	return s.run(ctx, lua.JobCancel, tenant, batch)
}
