package watch

import (
	"context"
	"errors"
	"sync"

	"leasehold.dev/internal/keyrange"
)

// Errors of requests that a stream cannot serve.
var (
	// errClosed means that the stream was closed.
	errClosed = errors.New("watch: stream is closed")
	// ErrDuplicate means that the stream already has a watcher with the ID, or that the ID is
	// AllWatchers.
	ErrDuplicate = errors.New("watch: id is in use")
	// ErrEmptyRange means that no key can be in the requested range.
	ErrEmptyRange = errors.New("watch: range is empty")
	// ErrNotFound means that the stream has no watcher with that ID.
	ErrNotFound = errors.New("watch: no such watcher")
	// ErrFull means that all watches together take too much memory, or those of one stream more
	// than they leave free.
	ErrFull = errors.New("watch: there are too many watches, or their keys are too long")
	// ErrRevision means that the requested revision is negative.
	ErrRevision = errors.New("watch: negative revision")
)

// AllWatchers is the ID of a refused watch, and of progress that applies to all watchers of the
// stream.
const AllWatchers int64 = -1

// maxRejected bounds the waiting batches of Reject of one stream.
const maxRejected = 1024

// maxPending bounds the unanswered progress requests of one stream.
const maxPending = 64

// Request describes a watch.
type Request struct {
	// ID names the watcher in its stream; 0 lets the stream choose.
	ID int64
	// Key and End are the range [Key, End). An empty End means the key Key
	// alone, the End "\x00" every key from Key on.
	Key, End string
	// From is the first revision to deliver, possibly in the future; 0 means the one after the
	// current.
	From int64
	// NoPut and NoDelete exclude events of that kind.
	NoPut, NoDelete bool
	// Tag is returned in every batch of the watcher.
	Tag any
}

// Kind is the kind of a batch.
type Kind uint8

// The kinds of batches.
const (
	// Changed carries events.
	Changed Kind = iota
	// Created answers a Watch, before anything else of that watcher, or, with Err, a Reject.
	Created
	// Cancelled is the last batch of a watcher: the answer to Cancel, or, with Err, the report that
	// history no longer has what the watcher needs.
	Cancelled
	// Progress means that everything up to Revision was delivered.
	Progress
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	return [...]string{"changed", "created", "cancelled", "progress"}[k]
}

// Batch is the next message for a stream's client.
type Batch[E Event] struct {
	Kind Kind
	ID   int64 // the watcher, or AllWatchers
	Tag  any   // of the watcher's Request
	// Events are in order, and whole revisions. The slice is shared: read only.
	Events []E
	// Revision: in Changed and Progress, every event of the watcher up to it was delivered with
	// this batch or before. In Created, the store's revision when the watcher started; with From 0,
	// its events are above it. Otherwise the store's current revision.
	Revision int64
	// Err is the reason why a watch was rejected or cancelled.
	Err error
	// Compacted is the store's compaction revision when history returned Err.
	Compacted int64
}

// Stream holds the watchers of one client, and the batches for it, in order. Only one goroutine at
// a time may call Poll and Next; the other methods are safe for concurrent use.
type Stream[E Event] struct {
	h    *Hub[E]
	wake chan struct{} // capacity 1: the agenda is no longer empty

	mu              sync.Mutex // guards the following fields
	watchers        map[int64]*watcher[E]
	agenda          fifo[notice[E]]
	nextID          int64
	progressPending int   // progress requests not yet answered
	rejected        int   // Created batches of Reject that wait
	taken           int64 // bytes, of the hub's
	closed          bool
}

// notice is an entry of the agenda. For Changed, watcher w is due. Otherwise it is the batch
// itself; in Progress, rev is the revision that must be reached first.
type notice[E Event] struct {
	kind Kind
	w    *watcher[E] // nil if id is AllWatchers
	id   int64
	rev  int64
	err  error
}

// NewStream returns a stream without watchers. It must be closed.
func (h *Hub[E]) NewStream() *Stream[E] {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams++
	return &Stream[E]{
		h:        h,
		wake:     make(chan struct{}, 1),
		watchers: make(map[int64]*watcher[E]),
	}
}

// Watch adds a watcher and returns its ID, which the Created batch repeats.
func (s *Stream[E]) Watch(r Request) (int64, error) {
	what := keyrange.Range{Key: r.Key, End: r.End}
	switch {
	case what.Empty():
		return AllWatchers, ErrEmptyRange
	case r.From < 0:
		return AllWatchers, ErrRevision
	}
	w := &watcher[E]{stream: s, tag: r.Tag, what: what}
	if r.NoPut {
		w.filter |= noPut
	}
	if r.NoDelete {
		w.filter |= noDelete
	}
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return AllWatchers, errClosed
	}
	var ok bool
	if w.id, ok = s.chooseLocked(r.ID); !ok {
		return AllWatchers, ErrDuplicate
	}
	if !s.takeLocked(w.cost()) {
		return AllWatchers, ErrFull
	}
	s.h.interest.Add(1)
	s.h.index.add(w)
	s.watchers[w.id] = w
	// Nothing can be offered before mu is unlocked, and everything published after this line will
	// be offered: here history and live events meet.
	w.goal = s.h.current().Revision()
	w.next = r.From
	if r.From == 0 {
		w.next = w.goal + 1
	}
	s.pushLocked(notice[E]{kind: Created, w: w, id: w.id, rev: w.goal})
	s.listLocked(w)
	return w.id, nil
}

// takeLocked takes bytes for a watch, unless that leaves too few.
func (s *Stream[E]) takeLocked(bytes int64) bool {
	if all := s.h.taken.Add(bytes); s.taken > s.h.opts.Watches-all {
		s.h.taken.Add(-bytes)
		return false
	}
	s.taken += bytes
	return true
}

func (s *Stream[E]) freeLocked(bytes int64) {
	s.taken -= bytes
	s.h.taken.Add(-bytes)
}

// chooseLocked returns the ID of a new watcher, or false if the ID is in use.
func (s *Stream[E]) chooseLocked(id int64) (int64, bool) {
	if id != 0 {
		_, used := s.watchers[id]
		return id, !used && id != AllWatchers
	}
	for s.watchers[s.nextID] != nil {
		s.nextID++
	}
	s.nextID++
	return s.nextID - 1, true
}

// Cancel ends a watcher. The Cancelled batch that answers it is the last one.
func (s *Stream[E]) Cancel(id int64) error { return s.Refuse(id, nil) }

// Refuse is Cancel with a reason, which becomes the Err of the Cancelled batch.
func (s *Stream[E]) Refuse(id int64, why error) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.watchers[id]
	if !ok {
		return ErrNotFound
	}
	s.dropLocked(w)
	s.h.forgetLocked(w)
	rev := s.h.current().Revision()
	s.pushLocked(notice[E]{kind: Cancelled, w: w, id: id, rev: rev, err: why})
	return nil
}

// Reject queues a Created batch with err: the watch was refused. It fails if too many such batches
// wait already.
func (s *Stream[E]) Reject(err error) error {
	rev := s.h.current().Revision()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rejected >= maxRejected {
		return ErrFull
	}
	s.rejected++
	s.pushLocked(notice[E]{kind: Created, id: AllWatchers, rev: rev, err: err})
	return nil
}

// RequestProgress requests a Progress batch for a watcher, or AllWatchers. The batch is delivered
// once everything up to the current revision has been delivered, but not while such a watcher waits
// for a future revision, because a client might resume from it. It is dropped if the watcher ends,
// or if 64 other requests are unanswered.
func (s *Stream[E]) RequestProgress(id int64) {
	s.mu.Lock()
	w := s.watchers[id]
	ok := s.progressPending < maxPending && (w != nil || id == AllWatchers)
	if ok {
		s.progressPending++
	}
	s.mu.Unlock()
	if ok {
		s.h.await(s, notice[E]{kind: Progress, w: w, id: id})
	}
}

// Ready returns a channel that receives a value when Poll has a batch again after it had none.
func (s *Stream[E]) Ready() <-chan struct{} { return s.wake }

// Next waits for the next batch. It fails when the stream is closed, or with the cause of ctx.
func (s *Stream[E]) Next(ctx context.Context) (Batch[E], error) {
	for {
		if b, ok := s.Poll(); ok {
			return b, nil
		}
		if s.isClosed() {
			return Batch[E]{}, errClosed
		}
		select {
		case <-ctx.Done():
			return Batch[E]{}, context.Cause(ctx)
		case <-s.wake:
		}
	}
}

// Poll returns the next batch, or false if there is none yet. It reads history.
func (s *Stream[E]) Poll() (b Batch[E], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !ok {
		n, more := s.agenda.pop()
		if !more || s.closed {
			return Batch[E]{}, false
		}
		switch n.kind {
		case Changed:
			b, ok = s.serveLocked(n.w)
		case Progress:
			b, ok = s.progressLocked(n)
		default:
			b = Batch[E]{Kind: n.kind, ID: n.id, Revision: n.rev, Err: n.err}
			switch {
			case n.w == nil:
				s.rejected--
			case n.kind == Cancelled: // only now are all its resources released
				s.freeLocked(n.w.cost())
				fallthrough
			default:
				b.Tag = n.w.tag
			}
			ok = true
		}
	}
	return b, ok
}

// Close ends the stream and all its watchers.
func (s *Stream[E]) Close() {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, w := range s.watchers {
		s.dropLocked(w)
		s.h.forgetLocked(w)
	}
	s.agenda = fifo[notice[E]]{}
	s.freeLocked(s.taken)
	s.h.streams--
	s.h.leaveLocked(s)
	s.signal()
}

func (s *Stream[E]) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
