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

// Ask is what somebody waits for.
type Ask struct {
	// Key is a ticket in the queue of Prefix.
	Key, Prefix string
	// Permits says that it is a ticket's turn when fewer tickets are before it; at least 1.
	Permits int64
	// Skips says that tickets with the value Beside do not count.
	Skips  bool
	Beside string
}

// State is where a ticket stands.
type State uint8

// The states. From each on only those behind it follow.
const (
	// None: there is no such ticket.
	None State = iota
	// Waiting: others are before it.
	Waiting
	// Ready: it is its turn.
	Ready
	// Gone: its key went, or is on no lease any more.
	Gone
)

// News is what is told of a ticket, as of a revision.
type News struct {
	State    State
	Revision int64
	// Created is the create revision of the key.
	Created int64
	// After is the key whose going made it the turn; empty if that is not known.
	After string
	// Why and Lease say what took the key, unless that is Unknown; a key that was taken off its
	// lease is told as deleted.
	Why     fsm.Reason
	Lease   lease.ID
	Unknown bool
}

// Waiter is told what becomes of its ticket: at most once that the turn has come, and at most
// once that the key is gone, nothing after that. Told is called with locks held, and must
// neither block nor call this package.
type Waiter interface{ Told(News) }

// Queues are the wait queues of a member in which somebody waits. It is safe for concurrent use.
//
// Lock order: what the hub holds while it distributes, then mu, then what Told takes.
type Queues struct {
	hub  *watch.Hub[*api.Event]
	view func() *mvcc.View

	mu      sync.Mutex // guards what follows
	queues  map[string]*queue
	reading map[string]chan struct{} // queues that are being read; closed when that is done
	live    int64                    // all queues have the events up to it
	touched []*queue                 // scratch of follow
	last    uint64                   // numbers the waiters

	between func() // of tests: called when a queue was read, without mu; may be nil
}

// New returns queues that follow a hub, which nobody must have used yet. view returns the
// current view: at least as new as what the hub has published.
func New(hub *watch.Hub[*api.Event], view func() *mvcc.View) *Queues {
	w := &Queues{
		hub: hub, view: view, queues: make(map[string]*queue),
		reading: make(map[string]chan struct{}),
	}
	hub.Tap(w.follow)
	return w
}

// Wait begins to wait, for a key as it was at a revision that this member has applied. It
// returns where the key stands, as of that revision or a later one; only if that is Waiting
// or Ready the waiter will be told, possibly before Wait returns, and must leave.
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
		// What it lacks has been published already, or is about to be.
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

// unlocked runs f without mu. A panic of f may be recovered from by the server of the call, and
// mu is unlocked on the way there.
func (w *Queues) unlocked(f func()) {
	w.mu.Unlock()
	defer w.mu.Lock()
	f()
}

// distribute has the hub distribute what was published. A panic there ends the process, as it
// does on the hub's own goroutine: the events are lost, and watchers would not learn of that.
func (w *Queues) distribute() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.hub.Distribute()
	}()
	<-done
}

// queueLocked returns a queue as it is followed or, if nobody waits in it, one that is read anew.
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

// fewKeys is how many keys of a queue are read with mu locked.
const fewKeys = 256

// readLocked reads a queue that has many keys, and does so with mu unlocked: nobody waits for that
// but who enters the same queue. What was distributed meanwhile is made up for.
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
		if w.between != nil {
			w.between()
		}
	})
	if w.live > q.from && !q.catchUp(w.view()) {
		q = newQueue(prefix)
		q.read(w.view(), math.MaxInt)
	}
	return q
}

// reached is the revision up to which a queue has all events.
func (w *Queues) reached(q *queue) int64 { return max(w.live, q.from) }

// missing tells of a key that is no ticket now: whether it was one at the revision.
func (w *Queues) missing(a Ask, asOf int64) News {
	v := w.view()
	r, err := v.Range(a.Key, "", mvcc.RangeOptions{Revision: asOf})
	switch {
	case err != nil: // it is so long ago that it is not known any more
		return News{State: Gone, Revision: v.Revision(), Unknown: true}
	case len(r.KVs) == 0 || !ticket.Is(a.Prefix, a.Key, r.KVs[0].Lease):
		return News{State: None}
	}
	return whatBecame(v, ticket.Ticket{Revision: r.KVs[0].CreateRevision, Key: a.Key}, asOf)
}

// Ended tells what took a key that a revision has made; None if it is there as it was then.
func Ended(v *mvcc.View, key string, created int64) News {
	if kv := v.Get(key); kv != nil && kv.CreateRevision == created {
		return News{}
	}
	since := max(created, v.Compacted())
	r, err := v.Range(key, "", mvcc.RangeOptions{Revision: since})
	if err != nil || len(r.KVs) == 0 || r.KVs[0].CreateRevision != created {
		return News{State: Gone, Revision: v.Revision(), Created: created, Unknown: true} // long ago
	}
	return whatBecame(v, ticket.Ticket{Revision: created, Key: key}, since)
}

// whatBecame tells what became of a key that is no ticket any more, and was one at a revision. If
// what came next is compacted, it is known all the same unless the key went before that.
func whatBecame(v *mvcc.View, t ticket.Ticket, since int64) News {
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

// follow is the hub's tap.
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
		if q != nil && e.Revision() > q.from && q.take(e.Change()) && !q.touched {
			q.touched = true
			w.touched = append(w.touched, q)
		}
		if i+1 == len(events) || events[i+1].Revision() != e.Revision() {
			w.settle(e.Revision())
		}
	}
	w.live = revision
}

// settle tells those whose turn came with a revision.
func (w *Queues) settle(revision int64) {
	for i, q := range w.touched {
		q.settle(revision)
		q.touched = false
		w.touched[i] = nil
	}
	w.touched = w.touched[:0]
}

// rereadAll takes all queues as they are now: events are missing.
func (w *Queues) rereadAll() {
	if len(w.queues) == 0 {
		return
	}
	v := w.view()
	for _, q := range w.queues {
		q.reread(v, w.reached(q))
	}
}

// Stats are gauges of the queues.
type Stats struct {
	// Queues is how many are followed, Waiting how many wait in them or have their turn.
	Queues, Waiting int
}

// Stats returns the gauges.
func (w *Queues) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{Queues: len(w.queues)}
	for _, q := range w.queues {
		s.Waiting += q.waiters
	}
	return s
}
