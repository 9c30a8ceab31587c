package watch

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Event is a change to one key. All watchers share an event, usually as a pointer, so it must not
// change once it has been published.
type Event interface {
	// Key is the changed key.
	Key() string
	// Revision is the store revision in which the change was made.
	Revision() int64
	// IsDelete is true for a deletion and false for a put.
	IsDelete() bool
	// Size is the size in bytes that counts toward limits.
	Size() int
}

// History is an immutable view of the store.
type History[E Event] interface {
	// Events returns the events in [key, end) at or after revision from, in order. It returns only
	// whole revisions, and stops after the one that brings the total to at least max events. The
	// caller owns the slice. next > from is the revision to continue from, at most Revision()+1. An
	// error, such as compaction, ends the watcher. end is as in Request.
	Events(key, end string, from int64, max int) (events []E, next int64, err error)
	// Revision is the latest revision in the view.
	Revision() int64
	// Compacted is the compacted revision, or 0 if there has been no compaction.
	Compacted() int64
}

// Limit bounds a queue or a batch by the number of events and the sum of their sizes.
type Limit struct {
	Events int
	Bytes  int
}

// exceeded reports whether n events with a total of b bytes exceed the limit.
func (l Limit) exceeded(n, b int) bool { return n > l.Events || b > l.Bytes }

// or returns l, with d's values in place of those that are not positive.
func (l Limit) or(d Limit) Limit {
	if l.Events <= 0 {
		l.Events = d.Events
	}
	if l.Bytes <= 0 {
		l.Bytes = d.Bytes
	}
	return l
}

// Options are the limits of a Hub. A zero field means the default given below.
type Options struct {
	// Backlog limits the events that have been published but not yet distributed. The default is
	// 65,536 events, 64 MiB.
	Backlog Limit
	// Queue limits the events that are queued for one watcher. The default is 4,096 events, 4 MiB.
	// A single revision always fits into an empty queue.
	Queue Limit
	// Queues limits the bytes that are queued for all watchers together. The default is 256 MiB. A
	// single watcher's share cannot exceed what remains free. An event queued for several watchers
	// of the same range counts only once.
	Queues int64
	// Batch limits the events that are delivered in one batch. The default is 1,024 events, 1 MiB.
	// A single larger revision is still delivered whole.
	Batch Limit
	// Watches limits the bytes used by the watches of all streams together. The default is 256 MiB.
	// A single stream's share cannot exceed what remains free.
	Watches int64
}

// watchCost is the memory used by a watch, excluding its keys.
const watchCost = 1 << 10

// Hub distributes published events to the watchers of its streams. Use New to create one. All
// methods are safe for concurrent use, but only a single writer may call Publish and Restore.
//
// Lock order: Hub.mu, then Stream.mu. backlog.mu is acquired alone or last.
type Hub[E Event] struct {
	current func() History[E]
	opts    Options

	// interest counts the watchers, the pending progress requests and the users of the tap. While
	// it is 0, Publish drops events. A watcher increments it before it reads the current view, so
	// that view includes every event dropped until then.
	interest atomic.Int64
	taken    atomic.Int64 // bytes used, limited by Options.Watches
	queued   atomic.Int64 // bytes used, limited by Options.Queues
	back     backlog[E]
	kick     chan struct{} // capacity 1; signals that the backlog needs to be distributed
	// reading has one token for each stream that is reading history. There are fewer tokens than
	// processors, because reading uses only CPU time, and hundreds of concurrent readers would
	// delay everything else.
	reading chan struct{}

	tap func(events []E, revision int64, gap bool) // see Tap

	// live is a revision: every event up to it has been offered to all watchers. It is written with
	// mu held. If a stream reads it while holding its own mu, all events up to it are already in
	// the stream's queues.
	live atomic.Int64

	mu      sync.Mutex // guards the following fields
	index   index[E]
	streams int
	waits   []wait[E]
	places  []*place[E] // scratch space of Distribute
	touched []*group[E] // scratch space of Distribute
}

// wait is a progress request for a revision that live has not reached yet.
type wait[E Event] struct {
	stream *Stream[E]
	notice notice[E]
}

// New returns a hub without streams. current returns the current view of the store. It is called
// from many goroutines and must be cheap, such as an atomic load. When Publish is called for a
// revision, the view must already include it.
func New[E Event](current func() History[E], o Options) *Hub[E] {
	o.Backlog = o.Backlog.or(Limit{Events: 1 << 16, Bytes: 64 << 20})
	o.Queue = o.Queue.or(Limit{Events: 4096, Bytes: 4 << 20})
	o.Batch = o.Batch.or(Limit{Events: 1024, Bytes: 1 << 20})
	o.Watches = cmp.Or(o.Watches, 256<<20)
	o.Queues = cmp.Or(o.Queues, 256<<20)
	h := &Hub[E]{
		current: current, opts: o, kick: make(chan struct{}, 1),
		reading: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1)),
	}
	h.index.init()
	h.back.limit = o.Backlog
	h.back.rev = current().Revision()
	h.live.Store(h.back.rev)
	return h
}

// Publish adds the events of all revisions since the previous call, up to and including rev. The
// events must be in order, and must not change from then on. Publish never blocks, and its cost
// does not depend on the watchers. It panics if rev does not increase, because that is a bug in the
// writer.
func (h *Hub[E]) Publish(rev int64, events []E) {
	wanted := h.Wanted()
	if !wanted {
		events = nil
	}
	h.back.add(rev, events)
	// In the meantime, a watcher may have started to wait for rev, and the last distribution may
	// have come too early to include rev.
	if wanted || h.Wanted() {
		h.signal()
	}
}

// PublishLater is like Publish, for a single revision with too many events for the writer to build.
// Instead, the distributing goroutine calls events. n is the number of events.
func (h *Hub[E]) PublishLater(rev int64, n int, events func() []E) {
	if !h.Wanted() {
		h.Publish(rev, nil)
		return
	}
	h.back.addLater(rev, n, events)
	h.signal()
}

// Wanted reports whether events published now would be kept. If not, the writer need not build
// them: a watch that starts in the meantime finds them in the current view.
func (h *Hub[E]) Wanted() bool { return h.interest.Load() > 0 }

// Restore tells the hub that the store has jumped to rev without publishing the events in between,
// for example because a snapshot replaced it. Every watcher reads the events that it missed from
// history.
func (h *Hub[E]) Restore(rev int64) {
	h.back.jump(rev)
	h.signal()
}

func (h *Hub[E]) signal() {
	select {
	case h.kick <- struct{}{}:
	default: // a distribution is already due and will include this
	}
}

// Tap registers f, which is called with all events on the distributing goroutine, before the
// watchers get them. gap means that some events up to the revision are missing, so f must read the
// current view. f must be fast, and must not call any method of the hub except Want. It is called
// only while the tap has users: see Want. Call Tap only once, before the hub is used.
func (h *Hub[E]) Tap(f func(events []E, revision int64, gap bool)) { h.tap = f }

// Want adds more to the number of the tap's users. A caller that reads the current view afterward
// misses nothing, because the tap gets everything that follows that view.
func (h *Hub[E]) Want(more int64) { h.interest.Add(more) }

// Live returns a revision: everything up to it has been distributed.
func (h *Hub[E]) Live() int64 { return h.live.Load() }

// Run distributes published events until ctx is done, and returns the context's cause. It is meant
// to run in its own goroutine, so that the writer does not pay for the watchers. A program without
// goroutines calls Distribute instead.
func (h *Hub[E]) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.kick:
			h.Distribute()
		}
	}
}

// Distribute moves all published events to the queues of the watchers that they match, and wakes
// those watchers' streams.
func (h *Hub[E]) Distribute() {
	h.mu.Lock()
	defer h.mu.Unlock()
	events, rev, gap := h.back.take()
	if h.tap != nil {
		h.tap(events, rev, gap != 0)
	}
	for i, e := range events {
		h.places = h.index.at(e.Key(), h.places[:0])
		for _, p := range h.places {
			for _, g := range p.groups {
				if g == nil || !g.filter.passes(e.IsDelete()) {
					continue
				}
				if len(g.staged) == 0 {
					h.touched = append(h.touched, g)
				}
				g.stage(events, i)
			}
		}
	}
	for i, g := range h.touched {
		g.flush(len(events), h.opts.Queue)
		h.touched[i] = nil
	}
	h.touched = h.touched[:0]
	if gap != 0 {
		h.index.each(func(w *watcher[E]) { w.stream.offer(w, nil, 0, 1, gap) })
	}
	h.live.Store(rev)
	h.answerWaitsLocked()
}

// answerWaitsLocked takes the progress requests whose revision live has reached, and posts each one
// to its stream.
func (h *Hub[E]) answerWaitsLocked() {
	live := h.live.Load()
	rest := h.waits[:0]
	for _, w := range h.waits {
		if w.notice.rev > live {
			rest = append(rest, w)
			continue
		}
		h.interest.Add(-1)
		w.stream.post(w.notice)
	}
	clear(h.waits[len(rest):])
	h.waits = rest
}

// Stats holds a hub's gauges, all read at the same time.
type Stats struct {
	Streams  int
	Watchers int
	Backlog  int // events published but not yet distributed
}

// Stats returns the hub's gauges.
func (h *Hub[E]) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{Streams: h.streams, Watchers: h.index.watchers, Backlog: h.back.len()}
}

// backlog holds the events that have been published but not yet distributed.
type backlog[E Event] struct {
	limit Limit

	mu     sync.Mutex // guards the following fields
	parts  []part[E]  // these precede events
	events []E
	count  int // number of events in parts
	bytes  int
	rev    int64 // latest published revision
	gap    int64 // first revision dropped because the backlog was full, or 0
}

// part is a sequence of events. If later is not nil, it builds the events of one more revision,
// which follow those in events.
type part[E Event] struct {
	events []E
	later  func() []E
}

func (b *backlog[E]) add(rev int64, events []E) {
	bytes := size(events)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.takesLocked(rev, len(events), bytes) {
		b.events = append(b.events, events...)
		b.bytes += bytes
	}
}

func (b *backlog[E]) addLater(rev int64, n int, events func() []E) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.takesLocked(rev, n, 0) {
		b.parts = append(b.parts, part[E]{b.events, events})
		b.count += len(b.events) + n
		b.events = nil
	}
}

// takesLocked records a revision, and reports whether there is room for its events. An empty
// backlog always has room.
func (b *backlog[E]) takesLocked(rev int64, n, bytes int) bool {
	if rev <= b.rev {
		panic(fmt.Sprintf("watch: revision %d was published after revision %d", rev, b.rev))
	}
	before := b.rev
	b.rev = rev
	if n == 0 || b.gap != 0 {
		return false
	}
	there := b.count + len(b.events)
	if there > 0 && b.limit.exceeded(there+n, b.bytes+bytes) {
		b.gap = before + 1
		return false
	}
	return true
}

func (b *backlog[E]) jump(rev int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gap == 0 {
		b.gap = b.rev + 1
	}
	b.rev = rev
}

// take empties the backlog and returns the events. The slice is not reused, because watchers'
// queues keep parts of it.
func (b *backlog[E]) take() (events []E, rev, gap int64) {
	parts, rev, gap := b.empty()
	events = parts[0].events
	for i, p := range parts {
		if i > 0 {
			events = append(events, p.events...)
		}
		if p.later != nil {
			events = append(events, p.later()...)
		}
	}
	return events, rev, gap
}

// empty empties the backlog, and returns at least one part. The last part has no later.
func (b *backlog[E]) empty() (parts []part[E], rev, gap int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	parts, gap = append(b.parts, part[E]{events: b.events}), b.gap
	b.parts, b.events, b.count, b.bytes, b.gap = nil, nil, 0, 0, 0
	return parts, b.rev, gap
}

func (b *backlog[E]) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count + len(b.events)
}

// await posts a progress request once live has reached the request's revision. For a new request,
// that is the current revision.
func (h *Hub[E]) await(s *Stream[E], n notice[E]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.isClosed() {
		return
	}
	h.interest.Add(1)
	if n.rev == 0 {
		n.rev = h.current().Revision()
	}
	h.waits = append(h.waits, wait[E]{s, n})
	h.answerWaitsLocked()
	if len(h.waits) > 0 {
		h.signal() // Publish may have skipped the signal while interest was 0
	}
}

// forgetLocked removes a watcher from the index.
func (h *Hub[E]) forgetLocked(w *watcher[E]) {
	h.index.remove(w)
	h.interest.Add(-1)
}

// leaveLocked drops the pending progress requests of a closing stream.
func (h *Hub[E]) leaveLocked(s *Stream[E]) {
	n := len(h.waits)
	h.waits = slices.DeleteFunc(h.waits, func(w wait[E]) bool { return w.stream == s })
	h.interest.Add(int64(len(h.waits) - n))
}
