package workspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

const (
	// interval is how often a replica asks whether a document has changed. Two of
	// them and a read are well below the second in which a change is in force.
	interval = 250 * time.Millisecond
	// unknownAfter is how long a replica goes by what it read last.
	unknownAfter = 2 * time.Second
	// seedsPerRound bounds the documents that one round creates.
	seedsPerRound = 64
	// tries bounds how often a change is made again from what is there now. Of n
	// writers at once one succeeds in each try.
	tries = 64
)

// Errors of Patch and MayKeep.
var (
	// ErrRetention: the workspace keeps nothing of what its requests bring.
	ErrRetention = errors.New("workspace: zero_data_retention")
	// ErrStale: the document is not the one that the precondition names.
	ErrStale = errors.New("workspace: the document has changed")
	// ErrUnknown: there is no such workspace.
	ErrUnknown = errors.New("workspace: there is no such workspace")
)

// Options are what a Set needs.
type Options struct {
	// Redis has the documents; nil: there is none, and nothing can be read or
	// changed.
	Redis  Redis
	Seeds  []Seed       // the workspaces there are
	Logger *slog.Logger // nil: slog.Default()
}

// Set is what one replica knows of all workspaces. Its methods are safe for
// concurrent use.
type Set struct {
	store store
	log   *slog.Logger
	stop  context.CancelFunc
	done  sync.WaitGroup
	wake  chan struct{} // of capacity 1: the next round begins at once

	mu    sync.RWMutex
	seeds map[string]Seed
	ids   []string            // of seeds, sorted
	known map[string]Document // read at least once; never more than seeds
	head  string              // that known stands under; anyHead: read again
	read  time.Time           // when Redis last answered; zero: never
	down  bool                // the last round failed, and the log says so
}

// New returns the set of the workspaces of o.Seeds, and begins to read their
// documents. Close ends that.
func New(o Options) *Set {
	s := &Set{store: store{o.Redis}, log: o.Logger, wake: make(chan struct{}, 1), known: map[string]Document{}}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.Declare(o.Seeds)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	if o.Redis != nil {
		s.done.Go(func() { s.follow(ctx) })
	}
	return s
}

// Close ends the reading and waits for it. What was read stays.
func (s *Set) Close() {
	s.stop()
	s.done.Wait()
}

// Declare replaces the workspaces that there are. Those that stay keep what is
// known of them.
func (s *Set) Declare(seeds []Seed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds, s.ids, s.head = make(map[string]Seed, len(seeds)), nil, anyHead
	for _, seed := range seeds {
		s.seeds[seed.ID] = seed
		s.ids = append(s.ids, seed.ID)
	}
	slices.Sort(s.ids)
	for id := range s.known {
		if _, stays := s.seeds[id]; !stays {
			delete(s.known, id)
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Queues reports whether requests of a workspace wait for a busy agent. One
// whose document is not known by now queues, as does one that never said.
func (s *Set) Queues(id string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return time.Since(s.read) > unknownAfter || s.known[id].Queues()
}

// MayKeep returns nil if something of a request's body may be stored. The error is
// ErrRetention where the document says zero_data_retention, and wraps
// limiter.ErrUnavailable where it was never read: what is not known is not kept.
func (s *Set) MayKeep(id string) error {
	d, known := s.Known(id)
	switch {
	case !known:
		return fmt.Errorf("workspace: the settings of %q were not read yet: %w", id, limiter.ErrUnavailable)
	case d.Retention:
		return ErrRetention
	}
	return nil
}

// Known returns what was read of a workspace last, however long ago; false:
// never.
func (s *Set) Known(id string) (Document, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	d, known := s.known[id]
	return d, known
}

// Get reads a document as it is now. The error is ErrUnknown, or wraps
// limiter.ErrUnavailable.
func (s *Set) Get(ctx context.Context, id string) (Document, error) {
	list, err := s.List(ctx, []string{id})
	if err != nil {
		return Document{}, err
	}
	return list[0], nil
}

// List reads documents as they are now, in the order of ids; see Get.
func (s *Set) List(ctx context.Context, ids []string) (list []Document, err error) {
	for chunk := range slices.Chunk(ids, perCall) {
		seeds, err := s.declared(chunk)
		if err != nil {
			return nil, err
		}
		if s.store.redis == nil {
			return nil, errNoStore
		}
		_, texts, err := s.store.read(ctx, chunk)
		if err != nil {
			return nil, err
		}
		for i, text := range texts {
			list = append(list, s.reading(seeds[i], text))
		}
	}
	return list, nil
}

var errNoStore = fmt.Errorf("workspace: no store: %w", limiter.ErrUnavailable)

// declared finds the seeds of ids.
func (s *Set) declared(ids []string) ([]Seed, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Seed, len(ids))
	for i, id := range ids {
		seed, ok := s.seeds[id]
		if !ok {
			return nil, fmt.Errorf("%w: %q", ErrUnknown, id)
		}
		out[i] = seed
	}
	return out, nil
}

// reading is what a stored text says. Where there is none, or nobody can read
// it, what was known last holds, or else the configuration, in version 0.
func (s *Set) reading(seed Seed, text string) Document {
	if text != "" {
		d, err := decode(seed.ID, text)
		if err == nil {
			return d
		}
		s.log.Error("workspace: what was known before holds in its place", "workspace", seed.ID, "error", err)
	}
	d, known := s.Known(seed.ID)
	if !known || d.Version == 0 {
		d = seed.document()
	}
	d.stored = text
	return d
}

// Changes lists the last 100 changes of a workspace, the latest first; errors
// as of Get.
func (s *Set) Changes(ctx context.Context, id string) ([]Change, error) {
	if _, err := s.declared([]string{id}); err != nil {
		return nil, err
	}
	if s.store.redis == nil {
		return nil, errNoStore
	}
	return s.store.changes(ctx, id)
}

// Patch changes a document and returns it as it is then, and what is different.
// match says whether the document may be changed as it is; nil: in any case. A
// patch that changes nothing writes nothing. The error is ErrStale, ErrUnknown,
// or wraps limiter.ErrUnavailable, and then it is open whether the change was
// made.
func (s *Set) Patch(ctx context.Context, id string, p Patch, by string, match func(Document) bool) (Document, []Field, error) {
	d, err := s.Get(ctx, id)
	if err != nil {
		return Document{}, nil, err
	}
	seeds, err := s.declared([]string{id})
	if err != nil {
		return Document{}, nil, err
	}
	for range tries {
		if match != nil && !match(d) {
			return d, nil, ErrStale
		}
		next, fields := p.apply(d)
		if len(fields) == 0 {
			return d, nil, nil
		}
		stored, ok, err := s.replace(ctx, d, next, by, fields)
		if err != nil {
			return Document{}, nil, err
		}
		d = s.reading(seeds[0], stored)
		if ok {
			s.adopt(d)
			return d, fields, nil
		}
	}
	return Document{}, nil, fmt.Errorf("workspace: %q changes all the time: %w", id, limiter.ErrUnavailable)
}

// replace writes next in place of d.
func (s *Set) replace(ctx context.Context, d, next Document, by string, fields []Field) (stored string, ok bool, err error) {
	next.Version, next.By = d.Version+1, by
	return s.store.write(ctx, d.stored, next, Change{By: by, Version: next.Version, Fields: fields})
}

// adopt goes by a document at once that this replica has just written.
func (s *Set) adopt(d Document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, declared := s.seeds[d.ID]; declared {
		s.known[d.ID] = d
	}
}
