package watch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Event is one change of one key. Implementations are shared by all watchers,
// usually as pointers, and must not change once published.
type Event interface {
	// Key is the changed key.
	Key() string
	// Revision is the store's revision that contains the change.
	Revision() int64
	// IsDelete tells a delete from a put.
	IsDelete() bool
	// Size is the memory or wire size in bytes that bounds are counted in.
	Size() int
}

// History is one immutable view of the store.
type History[E Event] interface {
	// Events returns the events of revisions >= from in [key, end), in order
	// and whole revisions only; it stops after the revision that brings their
	// number to max or above. The caller owns the slice. next > from is the
	// revision to go on from, at most Revision()+1. An error, such as
	// compaction, ends the watcher. end is as in Request.
	Events(key, end string, from int64, max int) (events []E, next int64, err error)
	// Revision is the latest revision in the view.
	Revision() int64
	// Compacted is the compaction revision; 0 if there was no compaction.
	Compacted() int64
}

// Limit bounds a queue or a batch by number of events and by bytes, the sum
// of their sizes.
type Limit struct {
	Events int
	Bytes  int
}

// exceeded reports whether n events of b bytes are more than the limit.
func (l Limit) exceeded(n, b int) bool { return n > l.Events || b > l.Bytes }

// or replaces what is not positive in l by what d says.
func (l Limit) or(d Limit) Limit {
	if l.Events <= 0 {
		l.Events = d.Events
	}
	if l.Bytes <= 0 {
		l.Bytes = d.Bytes
	}
	return l
}

// Options are the bounds of a Hub; what is zero has the default named here.
type Options struct {
	// Backlog bounds what was published and not yet distributed: 65,536
	// events, 64 MiB.
	Backlog Limit
	// Queue bounds what waits for one watcher: 4,096 events, 4 MiB. A single
	// revision always fits into an empty queue.
	Queue Limit
	// Batch bounds what is handed out at once: 1,024 events, 1 MiB. A single
	// revision above it is handed out whole.
	Batch Limit
}

// Hub distributes published events to the watchers of its streams. Create one
// with New. All methods are safe for concurrent use, but Publish and Restore
// belong to the one writer.
//
// Lock order: Hub.mu, then Stream.mu. backlog.mu is taken alone or last.
type Hub[E Event] struct {
	current func() History[E]
	opts    Options

	// interest counts the watchers, the waiting progress requests and the readers of what the
	// tap is given. While it is 0, Publish drops events: a watcher raises it before it looks
	// at the current view, so what it misses in the backlog is in that view.
	interest atomic.Int64
	back     backlog[E]
	kick     chan struct{} // capacity 1: the backlog wants to be distributed

	tap func(events []E, revision int64, gap bool) // see Tap

	// live is the revision up to which every watcher was offered its events.
	// Written with mu held; a stream that reads it under its own mu finds all
	// events up to it in its queues.
	live atomic.Int64

	mu      sync.Mutex // guards what follows
	index   index[E]
	streams int
	waits   []wait[E]
	places  []*place[E] // scratch of Distribute
	touched []*group[E] // scratch of Distribute
}

// wait is a progress request for which live is not yet far enough.
type wait[E Event] struct {
	stream *Stream[E]
	notice notice[E]
}

// New returns a hub without streams. current returns the current view of the
// store; it is called from many goroutines, must be cheap (an atomic load),
// and must show a revision before Publish is called for it.
func New[E Event](current func() History[E], o Options) *Hub[E] {
	o.Backlog = o.Backlog.or(Limit{Events: 1 << 16, Bytes: 64 << 20})
	o.Queue = o.Queue.or(Limit{Events: 4096, Bytes: 4 << 20})
	o.Batch = o.Batch.or(Limit{Events: 1024, Bytes: 1 << 20})
	h := &Hub[E]{current: current, opts: o, kick: make(chan struct{}, 1)}
	h.index.init()
	h.back.limit = o.Backlog
	h.back.rev = current().Revision()
	h.live.Store(h.back.rev)
	return h
}

// Publish hands over the events of the revisions after the previous call's,
// up to and including rev. They are in order, and immutable from now on. It
// never blocks and its cost does not depend on the watchers. It panics if rev
// does not increase, for then the writer is broken.
func (h *Hub[E]) Publish(rev int64, events []E) {
	wanted := h.Wanted()
	if !wanted {
		events = nil
	}
	h.back.add(rev, events)
	// Somebody may wait for rev since then, after a distribution without it.
	if wanted || h.Wanted() {
		h.signal()
	}
}

// PublishLater is Publish for the events of one revision if they are so many that the writer should
// not make them: the hub does, by a call on the goroutine that distributes. n is their number.
func (h *Hub[E]) PublishLater(rev int64, n int, events func() []E) {
	if !h.Wanted() {
		h.Publish(rev, nil)
		return
	}
	h.back.addLater(rev, n, events)
	h.signal()
}

// Wanted reports whether events that are published now are kept. If not, the writer need not
// make them: a watch that begins meanwhile finds them in the current view.
func (h *Hub[E]) Wanted() bool { return h.interest.Load() > 0 }

// Restore says that the store jumped to rev without events, as when a snapshot
// replaces it. Every watcher goes back to history for what it missed.
func (h *Hub[E]) Restore(rev int64) {
	h.back.jump(rev)
	h.signal()
}

func (h *Hub[E]) signal() {
	select {
	case h.kick <- struct{}{}:
	default: // it will be seen by the distribution that is already due
	}
}

// Tap has f called with all events, on the goroutine that distributes them, before the
// watchers are told; gap says that some up to the revision are missing, so that f has to look
// at the current view. It must be quick, and must not call the hub but for Want. It gets
// events only while somebody wants them. It is to be called before the hub is used, and once.
func (h *Hub[E]) Tap(f func(events []E, revision int64, gap bool)) { h.tap = f }

// Want says that as many more, or fewer, want what the tap is given. A caller that looks at
// the current view afterwards misses nothing: the tap is given all that comes after it.
func (h *Hub[E]) Want(more int64) { h.interest.Add(more) }

// Live returns the revision up to which everything was distributed.
func (h *Hub[E]) Live() int64 { return h.live.Load() }

// Run distributes what is published until ctx ends, and returns its cause.
// It is the one goroutine of the package, there so that the writer does not
// pay for the watchers; a program that has none calls Distribute instead.
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

// Distribute puts everything published so far into the queues of the watchers
// it matches, and wakes their streams.
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
		h.index.each(func(w *watcher[E]) { w.stream.offer(w, nil, 0, gap) })
	}
	h.live.Store(rev)
	h.answerWaitsLocked()
}

// answerWaitsLocked passes on the progress requests that live has reached.
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

// Stats are gauges of a hub, taken at one moment.
type Stats struct {
	Streams  int
	Watchers int
	Backlog  int // events published and not yet distributed
}

// Stats returns the hub's gauges.
func (h *Hub[E]) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Stats{Streams: h.streams, Watchers: h.index.watchers, Backlog: h.back.len()}
}

// backlog is what was published and not yet distributed.
type backlog[E Event] struct {
	limit Limit

	mu     sync.Mutex // guards what follows
	parts  []part[E]  // before events
	events []E
	count  int // of the events in parts
	bytes  int
	rev    int64 // latest published
	gap    int64 // first revision dropped because the backlog was full; 0 if none
}

// part is events that were published, and then those of a revision that are still to be made, if
// later is not nil.
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

// takesLocked notes a revision, and reports whether there is room for its events. One that finds
// nothing there always has room.
func (b *backlog[E]) takesLocked(rev int64, n, bytes int) bool {
	if rev <= b.rev {
		panic(fmt.Sprintf("watch: revision %d published after %d", rev, b.rev))
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

// take empties the backlog. The slice is not used again here: watchers keep
// parts of it in their queues.
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

// empty empties the backlog, and returns at least one part. The last has nothing that is made
// later.
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
