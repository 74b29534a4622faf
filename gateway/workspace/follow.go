package workspace

import (
	"context"
	"maps"
	"slices"
	"time"
)

// follow keeps what is known up to date until ctx ends.
func (s *Set) follow(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		at, err := s.round(ctx)
		if ctx.Err() != nil {
			return
		}
		s.heard(at, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.wake:
		}
	}
}

// heard notes how a round ended, and says so when that changes.
func (s *Set) heard(at time.Time, err error) {
	s.mu.Lock()
	was := s.down
	if s.down = err != nil; !s.down {
		s.read = at
	}
	s.mu.Unlock()
	switch {
	case err != nil && !was:
		s.log.Warn("workspace: documents cannot be read: requests queue, and what is not known to be kept is not", "error", err)
	case err == nil && was:
		s.log.Info("workspace: documents can be read again")
	}
}

// round asks for the head, and reads everything if it is not the one known.
// The time is that of the question: what was true then is what is known. Without
// workspaces it asks nothing.
func (s *Set) round(ctx context.Context) (time.Time, error) {
	s.mu.RLock()
	ids, known := s.ids, s.head
	s.mu.RUnlock()
	now := time.Now()
	if len(ids) == 0 {
		return now, nil
	}
	head, err := s.store.head(ctx)
	if err != nil || head == known {
		return now, err
	}
	// The head was read before the documents, so that one which changes meanwhile
	// is read again in the next round.
	fresh := make(map[string]Document, len(ids))
	var missing []Document
	for chunk := range slices.Chunk(ids, perCall) {
		seeds, err := s.declared(chunk)
		if err != nil {
			return now, nil // declared anew meanwhile, which begins another round
		}
		_, texts, err := s.store.read(ctx, chunk)
		if err != nil {
			return now, err
		}
		for i, text := range texts {
			d := s.reading(seeds[i], text)
			if fresh[d.ID] = d; text == "" {
				missing = append(missing, d)
			}
		}
	}
	if len(missing) > 0 {
		head = anyHead // until all are there
	}
	s.replaceKnown(ids, fresh, head)
	return now, s.create(ctx, missing)
}

// replaceKnown goes by what was read, unless there are other workspaces by now.
func (s *Set) replaceKnown(ids []string, fresh map[string]Document, head string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Equal(ids, s.ids) {
		maps.Copy(s.known, fresh)
		s.head = head
	}
}

// create writes the documents that are not there: new ones, and, where Redis has
// lost them, those that this replica knows. Whoever comes first wins; the head that
// it changes makes all replicas read. It does some in each round.
func (s *Set) create(ctx context.Context, missing []Document) error {
	for _, d := range missing[:min(len(missing), seedsPerRound)] {
		if _, _, err := s.replace(ctx, d, d, d.By, []Field{}); err != nil {
			return err
		}
	}
	return nil
}
