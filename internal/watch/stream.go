package watch

import (
	"context"
	"errors"
	"sync"

	"leasehold.dev/internal/keyrange"
)

// Errors of requests that a stream rejects.
var (
	// errClosed means that the stream has been closed.
	errClosed = errors.New("watch: stream is closed")
	// ErrDuplicate means that the stream already has a watcher with the ID, or that the ID is
	// AllWatchers.
	ErrDuplicate = errors.New("watch: id is in use")
	// ErrEmptyRange means that the requested range cannot contain any key.
	ErrEmptyRange = errors.New("watch: range is empty")
	// ErrNotFound means that the stream has no watcher with that ID.
	ErrNotFound = errors.New("watch: no such watcher")
	// ErrFull means that the watches of all streams together use too much memory, or that this
	// stream's watches use more than would remain free.
	ErrFull = errors.New("watch: there are too many watches, or their keys are too long")
	// ErrRevision means that the requested revision is negative.
	ErrRevision = errors.New("watch: negative revision")
)

// AllWatchers is the ID of a rejected watch, and of progress that applies to all of the stream's
// watchers.
const AllWatchers int64 = -1

// maxRejected limits the number of batches from Reject that one stream queues.
const maxRejected = 1024

// maxPending limits the number of unanswered progress requests of one stream.
const maxPending = 64

// Request describes a watch.
type Request struct {
	// ID identifies the watcher within its stream. If it is 0, the stream chooses an ID.
	ID int64
	// Key and End are the range [Key, End). If End is empty, the range is the single key Key. If
	// End is "\x00", the range is every key at or after Key.
	Key, End string
	// From is the first revision to deliver. It can be in the future. 0 means the revision after
	// the current one.
	From int64
	// NoPut and NoDelete exclude puts and deletions.
	NoPut, NoDelete bool
	// Tag is included in every batch for the watcher.
	Tag any
}

// Kind is the type of a batch.
type Kind uint8

// The kinds of batches.
const (
	// Changed contains events.
	Changed Kind = iota
	// Created answers a Watch, and precedes all other batches for the watcher. With Err, it answers
	// a Reject.
	Created
	// Cancelled is the last batch for a watcher. It answers a Cancel. With Err, it reports that the
	// watcher needs events that history no longer has.
	Cancelled
	// Progress means that everything up to Revision has been delivered.
	Progress
)

// String returns the kind's name in lowercase.
func (k Kind) String() string {
	return [...]string{"changed", "created", "cancelled", "progress"}[k]
}

// Batch is the next message for the client of a stream.
type Batch[E Event] struct {
	Kind Kind
	ID   int64 // ID of the watcher, or AllWatchers
	Tag  any   // from the watcher's Request
	// Events are in order and consist of whole revisions. The slice is shared and must not be
	// modified.
	Events []E
	// Revision depends on Kind. In Changed and Progress, all of the watcher's events up to Revision
	// have been delivered, in this batch or earlier ones. In Created, it is the store's revision
	// when the watcher started. If From is 0, the watcher gets only later events. For the other
	// kinds, Revision is the store's current revision.
	Revision int64
	// Err is why a watch was rejected or canceled.
	Err error
	// Compacted is the compacted revision of the store, if Err came from history.
	Compacted int64
}

// Stream holds one client's watchers and the batches for that client, in order. Only one goroutine
// at a time may call Poll and Next. The other methods are safe for concurrent use.
type Stream[E Event] struct {
	h    *Hub[E]
	wake chan struct{} // capacity 1; signals that the agenda is no longer empty

	mu              sync.Mutex // guards the following fields
	watchers        map[int64]*watcher[E]
	agenda          fifo[notice[E]]
	nextID          int64
	progressPending int   // number of unanswered progress requests
	rejected        int   // number of queued Created batches from Reject
	taken           int64 // how much of the hub's taken belongs to this stream
	closed          bool
}

// notice is an entry on the agenda. If kind is Changed, it means that watcher w is due. Otherwise
// it stands for a batch. For Progress, rev is the revision that must be reached first.
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

// Watch adds a watcher and returns its ID. The Created batch has the same ID.
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
	// Nothing can be offered until mu is released, and everything published after this line will be
	// offered. So this is the point where history ends and live events begin.
	w.goal = s.h.current().Revision()
	w.next = r.From
	if r.From == 0 {
		w.next = w.goal + 1
	}
	s.pushLocked(notice[E]{kind: Created, w: w, id: w.id, rev: w.goal})
	s.listLocked(w)
	return w.id, nil
}

// takeLocked reserves bytes for a watch. It fails if too few bytes would remain free.
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

// chooseLocked returns the ID for a new watcher, or false if the requested ID is in use.
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

// Cancel ends a watcher. The Cancelled batch that answers this call is its last batch.
func (s *Stream[E]) Cancel(id int64) error { return s.Refuse(id, nil) }

// Refuse is like Cancel, with a reason that becomes the Err of the Cancelled batch.
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

// Reject queues a Created batch with err, which means that the watch was rejected. It fails if too
// many such batches are already queued.
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

// RequestProgress requests a Progress batch for a watcher, or for AllWatchers. The batch is
// delivered once everything up to the current revision has been delivered. It is postponed while
// one of these watchers is waiting for a future revision, because a client might resume from the
// revision in the batch. The request is dropped if the watcher ends, or if there are already 64
// unanswered requests.
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

// Ready returns a channel that receives a value when Poll has a batch again after running out.
func (s *Stream[E]) Ready() <-chan struct{} { return s.wake }

// Next waits for the next batch. It returns an error if the stream is closed, or the cause if ctx
// is done.
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

// Poll returns the next batch, or false if there is none yet. It reads history if necessary.
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
			case n.kind == Cancelled: // all its resources have been freed only now
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
