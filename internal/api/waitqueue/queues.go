package waitqueue

import (
	"math"
	"sync"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/ticket"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// Ask describes what a waiter is waiting for.
type Ask struct {
	// Key is the key of a ticket in the queue with the given Prefix.
	Key, Prefix string
	// Permits is at least 1. A ticket is ready when fewer than Permits tickets are ahead of it.
	Permits int64
	// If Skips is set, tickets whose value is IgnoredValue do not count.
	Skips        bool
	IgnoredValue string
}

// State is the state of a ticket.
type State uint8

// The states, in the order in which a ticket goes through them.
const (
	// None means that the ticket does not exist.
	None State = iota
	// Waiting means that too many tickets are ahead of it.
	Waiting
	// Ready means that fewer than Permits tickets are ahead of it.
	Ready
	// Gone means that the key was deleted or detached from its lease.
	Gone
)

// News is a notification about a ticket as of a revision.
type News struct {
	State    State
	Revision int64
	Created  int64
	// After is the key whose deletion made the ticket ready. It is "" if unknown.
	After string
	// Why and Lease describe the cause of the key's deletion, unless Unknown is set. A detached key
	// is reported as deleted.
	Why     fsm.Reason
	Lease   lease.ID
	Unknown bool
}

// Waiter is notified about its ticket: at most once that the ticket is ready, and then at most once
// that the key is gone. Notify is called with locks held, so it must not block and must not call
// this package.
type Waiter interface{ Notify(News) }

// Queues contains the wait queues of a member that have waiters. It is safe for concurrent use.
//
// Lock order: first the locks that the hub holds while it distributes events, then mu, then the
// locks that Notify acquires.
type Queues struct {
	hub  *watch.Hub[*api.Event]
	view func() *mvcc.View

	mu     sync.Mutex // guards the following fields
	queues map[string]*queue
	// queues that are being read; each channel is closed when its read is done
	reading map[string]chan struct{}
	live    int64    // all queues include all events up to this revision
	touched []*queue // reused memory of follow
	last    uint64   // number of the most recent waiter

	afterRead func() // used by tests; called without mu after a queue has been read; may be nil
}

// New returns a Queues that follows a hub. The hub must be unused. view returns the current view,
// which must include everything that the hub has published.
func New(hub *watch.Hub[*api.Event], view func() *mvcc.View) *Queues {
	w := &Queues{
		hub: hub, view: view, queues: make(map[string]*queue),
		reading: make(map[string]chan struct{}),
	}
	hub.Tap(w.follow)
	return w
}

// Wait starts to wait for a key. The caller must have seen the key at revision asOf, and this
// member must have applied that revision. Wait returns the state of the key at that or a later
// revision. If the state is Waiting or Ready, the waiter receives notifications, possibly before
// Wait returns, and must call Leave.
func (w *Queues) Wait(a Ask, asOf int64, to Waiter) (e *Entry, _ News) {
	w.hub.Want(1)
	defer func() {
		if e == nil {
			w.hub.Want(-1)
		}
	}()
	return w.enter(a, asOf, to)
}

func (w *Queues) enter(a Ask, asOf int64, to Waiter) (*Entry, News) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queueLocked(a.Prefix)
	if w.reached(q) < asOf && w.queues[a.Prefix] == q {
		// The missing events have been or are about to be published.
		w.unlocked(w.distribute)
		q = w.queueLocked(a.Prefix)
	}
	if w.reached(q) < asOf {
		q.reread(w.view(), w.reached(q))
	}
	k := q.keys[a.Key]
	if k == nil || k.Revision > asOf {
		return nil, w.missing(a, asOf)
	}
	w.last++
	e := &Entry{
		queues: w, queue: q, key: k, number: w.last, to: to,
		rank: q.rankOf(a), state: Waiting,
	}
	w.queues[a.Prefix] = q
	q.enter(e)
	return e, News{State: e.state, Revision: w.reached(q), Created: k.Revision}
}

// unlocked runs f without holding mu. It locks mu again even if f panics, because the server may
// recover from the panic while a deferred function still unlocks mu.
func (w *Queues) unlocked(f func()) {
	w.mu.Unlock()
	defer w.mu.Lock()
	f()
}

// distribute makes the hub distribute the events that have been published. It uses a new goroutine,
// so that a panic ends the process, as it would on the hub's own goroutine. If the panic were
// recovered, events would be lost and watchers would not be notified.
func (w *Queues) distribute() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.hub.Distribute()
	}()
	<-done
}

// queueLocked returns the queue with the given prefix. If the queue has no waiters, it is read from
// the current view.
func (w *Queues) queueLocked(prefix string) *queue {
	for {
		if q := w.queues[prefix]; q != nil {
			return q
		}
		reading := w.reading[prefix]
		if reading == nil {
			if q := newQueue(prefix); q.read(w.view(), fewKeys) {
				return q
			}
			return w.readLocked(prefix)
		}
		w.unlocked(func() { <-reading })
	}
}

// fewKeys is the maximum number of keys to read while holding mu.
const fewKeys = 256

// readLocked reads a long queue without holding mu, so that only waiters in the same queue are
// delayed. It then applies the events that were distributed in the meantime.
func (w *Queues) readLocked(prefix string) *queue {
	done := make(chan struct{})
	w.reading[prefix] = done
	defer func() {
		delete(w.reading, prefix)
		close(done)
	}()
	q := newQueue(prefix)
	w.unlocked(func() {
		q.read(w.view(), math.MaxInt)
		if w.afterRead != nil {
			w.afterRead()
		}
	})
	if w.live > q.from && !q.catchUp(w.view()) {
		q = newQueue(prefix)
		q.read(w.view(), math.MaxInt)
	}
	return q
}

// reached returns the revision up to which the queue includes all events.
func (w *Queues) reached(q *queue) int64 { return max(w.live, q.from) }

// missing returns the state of a key that is no longer a ticket but may have been one at revision
// asOf.
func (w *Queues) missing(a Ask, asOf int64) News {
	v := w.view()
	r, err := v.Range(a.Key, "", mvcc.RangeOptions{Revision: asOf})
	switch {
	case err != nil: // the revision has been compacted
		return News{State: Gone, Revision: v.Revision(), Unknown: true}
	case len(r.KVs) == 0 || !ticket.Is(a.Prefix, a.Key, r.KVs[0].Lease):
		return News{State: None}
	}
	return ending(v, ticket.Ticket{Revision: r.KVs[0].CreateRevision, Key: a.Key}, asOf)
}

// Ended returns how the key created at the given revision ended. The result is the zero News if the
// key still exists.
func Ended(v *mvcc.View, key string, created int64) News {
	if kv := v.Get(key); kv != nil && kv.CreateRevision == created {
		return News{}
	}
	since := max(created, v.Compacted())
	r, err := v.Range(key, "", mvcc.RangeOptions{Revision: since})
	if err != nil || len(r.KVs) == 0 || r.KVs[0].CreateRevision != created {
		return News{State: Gone, Revision: v.Revision(), Created: created, Unknown: true}
	}
	return ending(v, ticket.Ticket{Revision: created, Key: key}, since)
}

// ending returns how a ticket ended. The ticket existed at revision since. If the events
// immediately after that revision have been compacted, the cause is known only if the ticket still
// existed at the compaction.
func ending(v *mvcc.View, t ticket.Ticket, since int64) News {
	news := News{State: Gone, Revision: v.Revision(), Created: t.Revision}
	if c := v.Compacted(); since+1 < c {
		r, err := v.Range(t.Key, "", mvcc.RangeOptions{Revision: c})
		if err != nil || len(r.KVs) == 0 || r.KVs[0].CreateRevision != t.Revision {
			news.Unknown = true
			return news
		}
		since = c
	}
	events, _, err := v.EventsIn(t.Key, "", since+1, 0)
	if news.Unknown = err != nil; news.Unknown {
		return news
	}
	for i := range events {
		if e := &events[i]; e.Delete {
			news.Why, news.Lease = fsm.WhyDeleted(e)
			news.Revision = e.KV.ModRevision
			break
		}
	}
	return news
}

// follow applies the events that the hub distributes.
func (w *Queues) follow(events []*api.Event, revision int64, gap bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gap {
		w.rereadAll()
		w.live = revision
		return
	}
	for i, e := range events {
		if len(w.queues) == 0 {
			break
		}
		q := w.queues[ticket.Prefix(e.Key())]
		if q != nil && e.Revision() > q.from && q.apply(e.Change()) && !q.touched {
			q.touched = true
			w.touched = append(w.touched, q)
		}
		if i+1 == len(events) || events[i+1].Revision() != e.Revision() {
			w.notifyReady(e.Revision())
		}
	}
	w.live = revision
}

// notifyReady notifies the waiters that became ready at the given revision.
func (w *Queues) notifyReady(revision int64) {
	for i, q := range w.touched {
		q.notifyReady(revision)
		q.touched = false
		w.touched[i] = nil
	}
	w.touched = w.touched[:0]
}

// rereadAll reads all queues again because events were missed.
func (w *Queues) rereadAll() {
	if len(w.queues) == 0 {
		return
	}
	v := w.view()
	for _, q := range w.queues {
		q.reread(v, w.reached(q))
	}
}

// Stats contains gauges.
type Stats struct {
	// Queues is the number of queues with waiters, and Waiting is the total number of waiters.
	Queues, Waiting int
}

// Stats returns the current gauges.
func (w *Queues) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{Queues: len(w.queues)}
	for _, q := range w.queues {
		s.Waiting += q.waiters
	}
	return s
}
