package waitqueue

import (
	"bytes"
	"math"

	"github.com/tidwall/btree"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/ticket"
)

// queue is one wait queue. It is guarded by Queues.mu.
type queue struct {
	prefix      string
	from        int64           // revision of the view from which the queue was read
	seen        int             // number of keys visited during the last read
	keys        map[string]*key // all tickets, including tickets of waiters on other members
	kinds       []*kind
	waiters     int
	touched     bool
	lastDeleted string // the most recently deleted key
}

// key is the key of a ticket.
type key struct {
	ticket.Ticket
	value   []byte   // shared; must not be modified
	entries []*Entry // the waiters with this ticket, usually one
}

// kind tracks the keys that count for some of the waiters, in order. The order is nil while there
// are so few keys that all of them are ready, which is the case in most queues.
type kind struct {
	queue   *queue
	skips   bool
	ignored string
	order   *btree.BTreeG[*key]
	ranks   []*rank
}

// rank contains those waiters of one kind that have the same number of permits.
//
// Invariant: between steps, all entries in waiting come after the key that has permits-1 keys
// before it.
type rank struct {
	kind    *kind
	permits int64
	waiting *btree.BTreeG[*Entry] // nil while empty
	waiters int                   // number of waiters, including ready ones
}

// Entry is a waiter and its ticket. Several waiters can share a ticket.
type Entry struct {
	queues *Queues
	queue  *queue
	key    *key
	rank   *rank
	number uint64
	to     Waiter
	state  State
}

func newTree[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{Degree: 16, NoLocks: true})
}

func newQueue(prefix string) *queue { return &queue{prefix: prefix, keys: make(map[string]*key)} }

// read reads the queue from a view. If more than most keys have the prefix, read stops early and
// whole is false.
func (q *queue) read(v *mvcc.View, most int) (whole bool) {
	// a local variable would escape to the heap because of the loop
	q.from, q.seen = v.Revision(), 0
	for kv := range v.Ascend(q.prefix, prefixEnd(q.prefix), 0) {
		if q.seen++; q.seen > most {
			break
		}
		if ticket.Is(q.prefix, kv.Key, kv.Lease) {
			q.add(kv)
		}
	}
	return q.seen <= most
}

// catchUp applies the changes made between the revision at which the queue was read and the view.
// The queue must not have any waiters. ok is false if the changes have been compacted.
func (q *queue) catchUp(v *mvcc.View) (ok bool) {
	events, _, err := v.EventsIn(q.prefix, prefixEnd(q.prefix), q.from+1, 0)
	if err != nil {
		return false
	}
	for i := range events {
		q.apply(&events[i])
	}
	q.from, q.lastDeleted = v.Revision(), ""
	return true
}

// prefixEnd returns the end of the range of keys with the prefix.
func prefixEnd(prefix string) string { return keyrange.OfPrefix(prefix).End }

// reread replaces the queue with its state in a newer view and notifies the waiters. Before the
// call, the queue must include all events up to revision since.
func (q *queue) reread(v *mvcc.View, since int64) {
	old := q.keys
	q.keys, q.lastDeleted = make(map[string]*key), ""
	for _, k := range q.kinds {
		k.order = nil
	}
	q.read(v, math.MaxInt)
	for name, was := range old {
		is := q.keys[name]
		if is != nil && is.Revision == was.Revision {
			is.entries = was.entries
			for _, e := range is.entries {
				e.key = is
			}
			continue
		}
		if len(was.entries) > 0 {
			q.notifyGone(was, ending(v, was.Ticket, since))
		}
	}
	q.notifyReady(v.Revision())
}

func (q *queue) add(kv *mvcc.KeyValue) {
	k := &key{
		Ticket: ticket.Ticket{Revision: kv.CreateRevision, Key: kv.Key}, value: kv.Value,
	}
	q.keys[kv.Key] = k
	q.count(k)
}

// count adds a key to the order of each kind for which it counts.
func (q *queue) count(k *key) {
	for _, of := range q.kinds {
		if of.order != nil && of.counts(k.value) {
			of.order.Set(k)
		}
	}
}

// discount removes a key from all orders.
func (q *queue) discount(k *key) {
	for _, of := range q.kinds {
		if of.order != nil {
			of.order.Delete(k)
		}
	}
}

func (q *queue) drop(k *key) {
	delete(q.keys, k.Key)
	q.lastDeleted = k.Key
	q.discount(k)
}

// apply applies an event that is newer than the view from which the queue was read. It reports
// whether any waiters may have become ready.
func (q *queue) apply(e *mvcc.Event) (changed bool) {
	k := q.keys[e.KV.Key]
	switch {
	case e.Delete && k != nil:
		news := News{State: Gone, Revision: e.KV.ModRevision, Created: k.Revision}
		news.Why, news.Lease = fsm.WhyDeleted(e)
		q.drop(k)
		q.notifyGone(k, news)
		return true
	case e.Delete:
		return false
	case !ticket.Is(q.prefix, e.KV.Key, e.KV.Lease):
		if k == nil {
			return false
		}
		q.drop(k)
		q.notifyGone(k, News{State: Gone, Revision: e.KV.ModRevision, Created: k.Revision})
		return true
	case k == nil:
		q.add(e.KV)
		return false
	case bytes.Equal(k.value, e.KV.Value):
		return false
	}
	q.discount(k)
	k.value = e.KV.Value
	q.count(k)
	q.lastDeleted = ""
	return true
}

func (k *kind) counts(value []byte) bool { return !k.skips || string(value) != k.ignored }

// rankOf returns the rank that matches a. It creates one if necessary.
func (q *queue) rankOf(a Ask) *rank {
	k := q.kindOf(a)
	for _, r := range k.ranks {
		if r.permits == a.Permits {
			return r
		}
	}
	r := &rank{kind: k, permits: a.Permits}
	k.ranks = append(k.ranks, r)
	return r
}

func (q *queue) kindOf(a Ask) *kind {
	for _, k := range q.kinds {
		if k.skips == a.Skips && (!k.skips || k.ignored == a.IgnoredValue) {
			return k
		}
	}
	k := &kind{queue: q, skips: a.Skips, ignored: a.IgnoredValue}
	q.kinds = append(q.kinds, k)
	return k
}

// sort builds the order if it does not exist yet.
func (k *kind) sort() {
	if k.order != nil {
		return
	}
	k.order = newTree(func(a, b *key) bool { return a.Before(b.Ticket) })
	for _, key := range k.queue.keys {
		if k.counts(key.value) {
			k.order.Set(key)
		}
	}
}

// enter adds a waiter.
func (q *queue) enter(e *Entry) {
	q.waiters++
	e.rank.waiters++
	e.key.entries = append(e.key.entries, e)
	if e.rank.ready(e.key) {
		e.state = Ready
		return
	}
	e.rank.wait(e)
}

// wait adds an entry that is not yet ready.
func (r *rank) wait(e *Entry) {
	if r.waiting == nil {
		r.waiting = newTree(func(a, b *Entry) bool {
			if c := a.key.Compare(b.key.Ticket); c != 0 {
				return c < 0
			}
			return a.number < b.number
		})
	}
	r.waiting.Set(e)
}

// ready reports whether the ticket with the given key is ready.
func (r *rank) ready(k *key) bool {
	last, ok := r.lastReady()
	return !ok || !last.Before(k.Ticket)
}

// lastReady returns the last key that is ready. ok is false if all keys are ready.
func (r *rank) lastReady() (_ *key, ok bool) {
	if r.permits >= int64(len(r.kind.queue.keys)) {
		return nil, false // no key can have that many keys ahead of it
	}
	if r.kind.sort(); r.permits > int64(r.kind.order.Len()) {
		return nil, false
	}
	return r.kind.order.GetAt(int(r.permits - 1))
}

// notifyReady notifies the waiters that became ready at the given revision.
func (q *queue) notifyReady(revision int64) {
	for _, k := range q.kinds {
		for _, r := range k.ranks {
			r.notifyReady(q.lastDeleted, revision)
		}
	}
}

func (r *rank) notifyReady(after string, revision int64) {
	for r.waiting != nil {
		e, ok := r.waiting.Min()
		if !ok || !r.ready(e.key) {
			return
		}
		r.waiting.Delete(e)
		e.state = Ready
		e.to.Notify(News{State: Ready, Revision: revision, Created: e.key.Revision, After: after})
	}
}

// notifyGone notifies the waiters whose key is gone.
func (q *queue) notifyGone(k *key, news News) {
	for _, e := range k.entries {
		if e.state == Waiting {
			e.rank.waiting.Delete(e)
		}
		e.state = Gone
		e.to.Notify(news)
	}
}

// Leave ends the wait. It must be called exactly once, even if the key is gone. After it returns,
// there are no more notifications.
func (e *Entry) Leave() {
	w, q := e.queues, e.queue
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hub.Want(-1)
	if e.state == Waiting {
		e.rank.waiting.Delete(e)
	}
	e.state = Gone
	e.key.removeEntry(e)
	q.leave(e.rank)
	if q.waiters == 0 {
		delete(w.queues, q.prefix)
	}
}

func (k *key) removeEntry(e *Entry) {
	for i, other := range k.entries {
		if other == e {
			last := len(k.entries) - 1
			k.entries[i], k.entries[last] = k.entries[last], nil
			k.entries = k.entries[:last]
			return
		}
	}
}

// leave removes a waiter from a rank. It also removes the rank and its kind if they are no longer
// used.
func (q *queue) leave(r *rank) {
	q.waiters--
	if r.waiters--; r.waiters > 0 {
		return
	}
	r.kind.ranks = remove(r.kind.ranks, r)
	if len(r.kind.ranks) == 0 {
		q.kinds = remove(q.kinds, r.kind)
	}
}

func remove[T comparable](list []T, t T) []T {
	for i, other := range list {
		if other == t {
			last := len(list) - 1
			var none T
			list[i], list[last] = list[last], none
			return list[:last]
		}
	}
	return list
}
