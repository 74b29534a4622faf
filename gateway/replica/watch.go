package replica

import (
	"crypto/sha256"
	"io"
	"os"
	"time"
)

// pollEvery is how often a watched file is looked at. A change is in force at the
// latest after two looks: when the file has been the same twice, its writer is
// taken to be done.
const pollEvery = 200 * time.Millisecond

// goneAfter is how many looks in a row a file is not there before that is told: for
// less than a second an editor's rename may leave none.
const goneAfter = int(time.Second / pollEvery)

// maxWatched bounds what is read of a file; a larger one is no configuration.
const maxWatched = 16 << 20

// watch tells when a file says something new. It looks at the file by its name
// instead of asking the kernel for events: so it sees an editor's rename, the
// symbolic links that Kubernetes swaps at the far end of a path, and files on
// network and overlay file systems that send no events, all in the same way. A
// look costs one stat; only what has changed is read.
type watch struct {
	file string

	seen os.FileInfo // when it was looked at last; nil: it could not be
	err  error       // why not
	away int         // looks in a row at which it could not be
	sum  [32]byte    // of what it said then

	pending bool // a change was seen, and f has not been called for it
}

// changed looks at the file, and reports whether it says something else than at the
// last look. A file that is not there, or cannot be read, says what it said.
func (w *watch) changed() bool {
	info, err := os.Stat(w.file)
	if err != nil {
		w.seen, w.err = nil, err
		return false
	}
	if w.seen != nil && os.SameFile(info, w.seen) && info.ModTime().Equal(w.seen.ModTime()) && info.Size() == w.seen.Size() {
		return false
	}
	f, err := os.Open(w.file)
	if err != nil {
		w.seen, w.err = nil, err
		return false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxWatched)); err != nil {
		w.seen, w.err = nil, err
		return false
	}
	sum := [32]byte(h.Sum(nil))
	w.seen = info
	different := sum != w.sum
	w.sum = sum
	return different
}

// run calls f after each change of the file, until stop is closed. It calls lost when
// the file has been away for goneAfter, and f when it is back, whatever it says then.
func (w *watch) run(stop <-chan struct{}, f func(), lost func(error)) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		changed, away := w.changed(), w.away
		if w.seen == nil {
			if w.away++; w.away == goneAfter {
				lost(w.err)
			}
			continue
		}
		w.away = 0
		switch {
		case changed || away >= goneAfter:
			w.pending = true
		case w.pending:
			w.pending = false
			f()
		}
	}
}
