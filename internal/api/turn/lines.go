package turn

import (
	"math"
	"sync"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/line"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// Ask is what somebody waits for.
type Ask struct {
	// Key is a place in the line of Prefix.
	Key, Prefix string
	// Permits says that it is a place's turn when fewer places are before it; at least 1.
	Permits int64
	// Skips says that places with the value Beside do not count.
	Skips  bool
	Beside string
}

// State is where a place stands.
type State uint8

// The states. From each on only those behind it follow.
const (
	// None: there is no such place.
	None State = iota
	// Waiting: others are before it.
	Waiting
	// Come: it is its turn.
	Come
	// Gone: its key went, or is on no lease any more.
	Gone
)

// News is what is told of a place, as of a revision.
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

// Waiter is told what becomes of its place: at most once that the turn has come, and at most
// once that the key is gone, nothing after that. Told is called with locks held, and must
// neither block nor call this package.
type Waiter interface{ Told(News) }

// Lines are the lines of a member in which somebody waits. It is safe for concurrent use.
//
// Lock order: what the hub holds while it distributes, then mu, then what Told takes.
type Lines struct {
	hub  *watch.Hub[*api.Event]
	view func() *mvcc.View

	mu      sync.Mutex // guards what follows
	lines   map[string]*queue
	reading map[string]chan struct{} // lines that are being read; closed when that is done
	live    int64                    // all lines have the events up to it
	gaps    int                      // how often events were missing
	touched []*queue                 // scratch of follow
	last    uint64                   // numbers those who wait

	between func() // of tests: called when a line was read, without mu; may be nil
}

// New returns lines that follow a hub, which nobody must have used yet. view returns the
// current view: at least as new as what the hub has published.
func New(hub *watch.Hub[*api.Event], view func() *mvcc.View) *Lines {
	l := &Lines{
		hub: hub, view: view, lines: make(map[string]*queue),
		reading: make(map[string]chan struct{}),
	}
	hub.Tap(l.follow)
	return l
}

// Wait begins to wait, for a key as it was at a revision that this member has applied. It
// returns where the key stands, as of that revision or a later one; only if that is Waiting
// or Come the waiter will be told, possibly before Wait returns, and must leave.
func (l *Lines) Wait(a Ask, asOf int64, to Waiter) (p *Place, _ News) {
	l.hub.Want(1)
	defer func() {
		if p == nil {
			l.hub.Want(-1)
		}
	}()
	return l.enter(a, asOf, to)
}

func (l *Lines) enter(a Ask, asOf int64, to Waiter) (*Place, News) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.lineLocked(a.Prefix)
	if l.reached(q) < asOf && l.lines[a.Prefix] == q {
		// What it lacks has been published already, or is about to be.
		l.unlocked(l.distribute)
		q = l.lineLocked(a.Prefix)
	}
	if l.reached(q) < asOf {
		q.reread(l.view(), l.reached(q))
	}
	k := q.keys[a.Key]
	if k == nil || k.Revision > asOf {
		return nil, l.missing(a, asOf)
	}
	l.last++
	p := &Place{
		lines: l, queue: q, key: k, number: l.last, to: to,
		rank: q.rankOf(a), state: Waiting,
	}
	l.lines[a.Prefix] = q
	q.enter(p)
	return p, News{State: p.state, Revision: max(l.reached(q), asOf), Created: k.Revision}
}

// unlocked runs f without mu. A panic of f may be recovered from by whoever serves the call, and
// mu is unlocked on the way there.
func (l *Lines) unlocked(f func()) {
	l.mu.Unlock()
	defer l.mu.Lock()
	f()
}

// distribute has the hub distribute what was published. A panic there ends the process, as it
// does on the hub's own goroutine: the events are lost, and watchers would not learn of that.
func (l *Lines) distribute() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.hub.Distribute()
	}()
	<-done
}

// lineLocked returns a line as it is followed or, if nobody waits in it, one that is read anew.
func (l *Lines) lineLocked(prefix string) *queue {
	for {
		if q := l.lines[prefix]; q != nil {
			return q
		}
		reading := l.reading[prefix]
		if reading == nil {
			if q := newQueue(prefix); q.read(l.view(), fewKeys) {
				return q
			}
			return l.readLocked(prefix)
		}
		l.unlocked(func() { <-reading })
	}
}

// fewKeys is how many keys of a line are read with mu locked.
const fewKeys = 256

// readLocked reads a line that has many keys, and does so with mu unlocked: nobody waits for that
// but who enters the same line. What was distributed meanwhile is made up for.
func (l *Lines) readLocked(prefix string) *queue {
	done, gaps := make(chan struct{}), l.gaps
	l.reading[prefix] = done
	defer func() {
		delete(l.reading, prefix)
		close(done)
	}()
	q := newQueue(prefix)
	l.unlocked(func() {
		q.read(l.view(), math.MaxInt)
		if l.between != nil {
			l.between()
		}
	})
	if l.live > q.from && (l.gaps != gaps || !q.catchUp(l.view())) {
		q = newQueue(prefix)
		q.read(l.view(), math.MaxInt)
	}
	return q
}

// reached is the revision up to which a line has all events.
func (l *Lines) reached(q *queue) int64 { return max(l.live, q.from) }

// missing tells of a key that is no place now: whether it was one at the revision.
func (l *Lines) missing(a Ask, asOf int64) News {
	v := l.view()
	r, err := v.Range(a.Key, "", mvcc.RangeOptions{Revision: asOf})
	switch {
	case err != nil: // it is so long ago that it is not known any more
		return News{State: Gone, Revision: v.Revision(), Unknown: true}
	case len(r.KVs) == 0 || !line.IsPlace(a.Prefix, a.Key, r.KVs[0].Lease):
		return News{State: None}
	}
	return fate(v, line.Place{Revision: r.KVs[0].CreateRevision, Key: a.Key}, asOf)
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
	return fate(v, line.Place{Revision: created, Key: key}, since)
}

// fate tells what became of a key that is no place any more, and was one at a revision. If
// what came next is compacted, it is known all the same unless the key went before that.
func fate(v *mvcc.View, p line.Place, since int64) News {
	news := News{State: Gone, Revision: v.Revision(), Created: p.Revision}
	if c := v.Compacted(); since+1 < c {
		r, err := v.Range(p.Key, "", mvcc.RangeOptions{Revision: c})
		if err != nil || len(r.KVs) == 0 || r.KVs[0].CreateRevision != p.Revision {
			news.Unknown = true
			return news
		}
		since = c
	}
	events, _, err := v.EventsIn(p.Key, "", since+1, 0)
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
func (l *Lines) follow(events []*api.Event, revision int64, gap bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gap {
		l.rereadAll()
		l.gaps++
		l.live = max(l.live, revision)
		return
	}
	for i, e := range events {
		if len(l.lines) == 0 {
			break
		}
		q := l.lines[line.Prefix(e.Key())]
		if q != nil && e.Revision() > q.from && q.take(e.Change()) && !q.touched {
			q.touched = true
			l.touched = append(l.touched, q)
		}
		if i+1 == len(events) || events[i+1].Revision() != e.Revision() {
			l.settle(e.Revision())
		}
	}
	l.live = max(l.live, revision)
}

// settle tells those whose turn came with a revision.
func (l *Lines) settle(revision int64) {
	for i, q := range l.touched {
		q.settle(revision)
		q.touched = false
		l.touched[i] = nil
	}
	l.touched = l.touched[:0]
}

// rereadAll takes all lines as they are now: events are missing.
func (l *Lines) rereadAll() {
	if len(l.lines) == 0 {
		return
	}
	v := l.view()
	for _, q := range l.lines {
		q.reread(v, l.reached(q))
	}
}

// Stats are gauges of the lines.
type Stats struct {
	// Lines is how many are followed, Waiting how many wait in them or have their turn.
	Lines, Waiting int
}

// Stats returns the gauges.
func (l *Lines) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Lines: len(l.lines)}
	for _, q := range l.lines {
		s.Waiting += q.places
	}
	return s
}
