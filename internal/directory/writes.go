package directory

import (
	"maps"
	"slices"

	"github.com/tidwall/btree"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// Write is the part of a command that concerns caches. The caller sets the exported fields, and
// must not change them between Admit and Finish.
type Write struct {
	// Owner is for the caller's use.
	Owner any
	// Touches lists the keys that may change, in any branch.
	Touches []keyrange.Range
	// Ends lists the leases that the write ends. When a lease ends, the keys attached to it at
	// apply time are deleted.
	Ends []lease.ID
	// Renews lists the leases that the write renews.
	Renews []lease.ID
	// Attaches lists leases that the write may attach keys to. AttachesAny is set if the write may
	// also attach keys to other leases.
	Attaches    []lease.ID
	AttachesAny bool
	// Urgent is set if the write waits only for caches, and not for other writes to the same keys.
	Urgent bool

	of      *waitingWrites
	state   writeState
	number  uint64                      // numbered in order of admission
	marks   []keyrange.Range            // ranges that are pending because of this write
	marked  map[keyrange.Range]struct{} // the same ranges, if there are many
	behind  int                         // number of earlier writes that it waits for
	blocked int                         // number of drops that it waits for
	drops   int                         // number of drops that it is waiting for or has waited for
	keys    int                         // approximate number of keys on the leases that it ends
	last    lease.ID                    // lease of the cache that it waited for last, or 0
	next    []*Write                    // later writes that wait for it
	since   lease.Instant
	waited  lease.TTL
}

// writeState is the state of a write.
type writeState uint8

const (
	unknown  writeState = iota // not admitted, or does not concern caches
	waiting                    // in the directory
	inFlight                   // has been passed on, but its outcome is not known yet
	finished
)

// Waited returns how long a write waited before Ready returned it.
func (w *Write) Waited() lease.TTL { return w.waited }

// Drops returns how many ranges a write has waited for caches to drop, and the lease of the last
// cache that it waited for, or 0. A range counts once for each cache that may have had it.
func (w *Write) Drops() (count int, last lease.ID) { return w.drops, w.last }

// block makes a write wait for one more drop.
func (w *Write) block() {
	w.blocked++
	w.drops++
}

// unblock records that a write has one less drop to wait for. by is the lease of the cache.
func (w *Write) unblock(by lease.ID) {
	w.blocked--
	w.last = by
}

// manyMarks is the maximum number of marks that are searched linearly.
const manyMarks = 16

// has reports whether exactly this range is pending because of w.
func (w *Write) has(r keyrange.Range) bool {
	if w.marked == nil {
		return slices.Contains(w.marks, r)
	}
	_, ok := w.marked[r]
	return ok
}

// mark counts the writes that make a range pending.
type mark struct{ writes int }

// waitingWrites contains the writes that have not finished, and what the waiting ones wait for. A
// write waits for drops of caches, for earlier writes to its keys, for commands in flight that may
// attach keys to a lease that it ends, and, if it is urgent, for other urgent writes. The caller
// decides which caches a write waits for, and calls leave once mayLeave returns true.
//
// Invariants: waiting contains the writes in that state. Each of them waits for something, unless
// the caller is about to try it. marks counts the unfinished writes with each range in their marks.
// tails, and the last writes in leases, contain only waiting writes. leases contains no empty
// record. A stuck write is found when the last command that it waits for is settled. Each attacher
// follows a stuck write. crowd is empty if there is room for an urgent write.
type waitingWrites struct {
	limits Limits
	// marks contains the pending ranges. tails maps each range that writes are waiting for to the
	// last of those writes.
	marks keyrange.Tree[*mark]
	tails keyrange.Tree[*Write]
	links int    // total length of all next lists
	last  uint64 // number of the last write

	leases       map[lease.ID]*leaseWrites
	attachingAny int
	waiting      map[*Write]struct{}
	ready        []*Write
	freed        []freed // not yet unblocked, in order
	// stuck contains the writes that are waiting only for commands that attach keys, keyed by
	// number. The writes in stuckAny wait for attachingAny to become 0. The others are in
	// leaseWrites.stuck. attachers contains the writes with AttachesAny that must wait until no
	// stuck write precedes them, ordered by number.
	stuck     btree.Map[uint64, *Write]
	stuckAny  []*Write
	attachers []*Write

	urgent     int      // number of urgent writes in flight
	endingKeys int      // number of keys attached to the leases that they end
	crowd      []*Write // writes held back only by the limit on urgent writes, in order

	count uint64      // number of writes that have waited
	waits []lease.TTL // their wait times since the last call to takeWaits
}

func newWaitingWrites(l Limits) waitingWrites {
	return waitingWrites{
		limits: l, leases: make(map[lease.ID]*leaseWrites), waiting: make(map[*Write]struct{}),
	}
}

// freed is a set of writes that no longer wait for the cache of lease by.
type freed struct {
	by     lease.ID
	writes []*Write
}

// leaseWrites tracks the writes that concern one lease.
type leaseWrites struct {
	attaching int      // number of commands in flight that may attach keys
	renewing  int      // number of commands in flight that renew the lease
	ending    *Write   // the last write that is waiting to end the lease
	attacher  *Write   // the last write that is waiting to attach a key
	stuck     []*Write // writes that wait for attaching to become 0
}

func (l *leaseWrites) none() bool {
	return l.attaching+l.renewing+len(l.stuck) == 0 && l.ending == nil && l.attacher == nil
}

// value returns *l, or the zero value if l is nil.
func (l *leaseWrites) value() leaseWrites {
	if l == nil {
		return leaseWrites{}
	}
	return *l
}

// change applies f to the record of a lease.
func (q *waitingWrites) change(id lease.ID, f func(*leaseWrites)) {
	l := q.leases[id]
	if l == nil {
		l = &leaseWrites{}
		q.leases[id] = l
	}
	if f(l); l.none() {
		delete(q.leases, id)
	}
}

// none reports whether no write is waiting, and no command in flight matters to later writes.
func (q *waitingWrites) none() bool { return len(q.leases) == 0 && len(q.waiting) == 0 }

// renewing reports whether a command in flight renews a lease.
func (q *waitingWrites) renewing(id lease.ID) bool { return q.leases[id].value().renewing > 0 }

// attaching reports whether a command in flight may attach keys to a lease.
func (q *waitingWrites) attaching(id lease.ID) bool {
	return q.attachingAny > 0 || q.leases[id].value().attaching > 0
}

// add adds a write, which then waits. It returns false if too many writes are waiting.
func (q *waitingWrites) add(w *Write, now lease.Instant) bool {
	if !w.Urgent && len(q.waiting) >= q.limits.Waiting {
		return false
	}
	q.last++
	w.number, w.since, w.state, w.of = q.last, now, waiting, q
	q.waiting[w] = struct{}{}
	return true
}

// mark makes a range pending. It returns false if the range is already pending because of w.
func (q *waitingWrites) mark(w *Write, r keyrange.Range) bool {
	if w.has(r) {
		return false
	}
	w.marks = append(w.marks, r)
	if len(w.marks) > manyMarks {
		if w.marked == nil {
			w.marked = make(map[keyrange.Range]struct{})
			for _, r := range w.marks {
				w.marked[r] = struct{}{}
			}
		}
		w.marked[r] = struct{}{}
	}
	m, ok := q.marks.Get(r)
	if !ok {
		m = &mark{}
		q.marks.Put(r, m)
	}
	m.writes++
	return true
}

// waitForEarlier makes a write wait for earlier writes. It returns false if there are too many of
// them.
func (q *waitingWrites) waitForEarlier(w *Write) bool {
	behind := func(b *Write) {
		if b != nil && b != w {
			b.next = append(b.next, w)
			w.behind++
			q.links++
		}
	}
	if !w.Urgent {
		for _, r := range w.marks {
			for b := range q.tails.Overlapping(r) {
				if q.links >= q.limits.Links {
					return false
				}
				behind(b)
			}
		}
	}
	for _, id := range w.Attaches {
		// Without this, writes that attach keys could keep a lease from ever ending.
		behind(q.leases[id].value().ending)
	}
	if w.AttachesAny { // for the same reason; if no write is stuck, passed releases it immediately
		q.attachers = append(q.attachers, w)
		w.behind++
	}
	for _, id := range w.Ends {
		if !w.Urgent {
			behind(q.leases[id].value().attacher)
		}
	}
	return true
}

// queue ensures that writes admitted from now on wait for w.
func (q *waitingWrites) queue(w *Write) {
	if !w.Urgent {
		for _, r := range w.marks {
			if _, there := q.tails.Get(r); there {
				q.tails.Remove(r)
			}
			q.tails.Put(r, w)
		}
	}
	for _, id := range w.Ends {
		q.change(id, func(l *leaseWrites) { l.ending = w })
	}
	for _, id := range w.Attaches {
		q.change(id, func(l *leaseWrites) { l.attacher = w })
	}
}

// unqueue ensures that no write admitted from now on waits for w.
func (q *waitingWrites) unqueue(w *Write) {
	for _, r := range w.marks {
		if b, _ := q.tails.Get(r); b == w {
			q.tails.Remove(r)
		}
	}
	for _, id := range w.Ends {
		q.change(id, func(l *leaseWrites) {
			if l.ending == w {
				l.ending = nil
			}
		})
	}
	for _, id := range w.Attaches {
		q.change(id, func(l *leaseWrites) {
			if l.attacher == w {
				l.attacher = nil
			}
		})
	}
}

// mayLeave reports whether a write has nothing left to wait for, as far as is known. More keys may
// have been attached to the leases that it ends, and caches may have them.
func (q *waitingWrites) mayLeave(w *Write) bool {
	return w.state == waiting && w.behind == 0 && w.blocked == 0 && q.room(w) && !q.stick(w)
}

// stick reports whether a write must wait because commands in flight may attach keys to a lease
// that it ends. The write is then stuck.
func (q *waitingWrites) stick(w *Write) bool {
	for _, id := range w.Ends {
		if q.attachingAny > 0 {
			q.stuckAny = append(q.stuckAny, w)
		} else if l := q.leases[id]; l.value().attaching > 0 {
			l.stuck = append(l.stuck, w)
		} else {
			continue
		}
		q.stuck.Set(w.number, w)
		return true
	}
	q.stuck.Delete(w.number)
	return false
}

// leave makes a write ready, so that it is in flight. It returns the writes that were waiting for
// it.
func (q *waitingWrites) leave(w *Write) (next []*Write) {
	w.state = inFlight
	if w.Urgent {
		q.urgent++
		q.endingKeys += w.keys
	}
	delete(q.waiting, w)
	q.unqueue(w)
	for _, id := range w.Renews {
		q.change(id, func(l *leaseWrites) { l.renewing++ })
	}
	for _, id := range w.Attaches {
		q.change(id, func(l *leaseWrites) { l.attaching++ })
	}
	if w.AttachesAny {
		q.attachingAny++
	}
	q.ready = append(q.ready, w)
	return q.release(w)
}

// release releases and returns the writes that were waiting for w.
func (q *waitingWrites) release(w *Write) []*Write {
	for _, n := range w.next {
		n.behind--
	}
	next := w.next
	w.next = nil
	q.links -= len(next)
	return next
}

// passed removes and returns the attachers that are not preceded by a stuck write.
func (q *waitingWrites) passed() (list []*Write) {
	if len(q.attachers) == 0 {
		return nil
	}
	first, _, any := q.stuck.Min()
	n := 0
	for ; n < len(q.attachers) && (!any || q.attachers[n].number < first); n++ {
		q.attachers[n].behind--
	}
	list, q.attachers = q.attachers[:n:n], q.attachers[n:]
	return list
}

// finish records the outcome of a write, which may still be waiting. It returns the writes that
// were waiting for it. It ignores writes that are finished or were never added.
func (q *waitingWrites) finish(w *Write) (next []*Write) {
	if w.of != q || w.state == finished {
		return nil
	}
	var stuck []*Write
	if w.state == waiting {
		delete(q.waiting, w)
		q.stuck.Delete(w.number)
		q.unqueue(w)
	} else {
		stuck = q.settle(w)
	}
	w.state = finished
	for _, r := range w.marks {
		m, _ := q.marks.Get(r)
		if m.writes--; m.writes == 0 {
			q.marks.Remove(r)
		}
	}
	return slices.Concat(q.release(w), q.passed(), sortedByNumber(stuck))
}

// settle undoes the effects of leave when the outcome of a write is known. It returns the writes
// that are no longer stuck.
func (q *waitingWrites) settle(w *Write) (stuck []*Write) {
	if w.Urgent {
		q.urgent--
		q.endingKeys -= w.keys
	}
	for _, id := range w.Renews {
		q.change(id, func(l *leaseWrites) { l.renewing-- })
	}
	for _, id := range w.Attaches {
		q.change(id, func(l *leaseWrites) {
			if l.attaching--; l.attaching == 0 {
				stuck = append(stuck, l.stuck...)
				l.stuck = nil
			}
		})
	}
	if !w.AttachesAny {
		return stuck
	}
	if q.attachingAny--; q.attachingAny == 0 {
		stuck = append(stuck, q.stuckAny...)
		q.stuckAny = nil
	}
	return stuck
}

// keysPerUrgent is the number of keys allowed per urgent write in flight. So Limits.Ending urgent
// writes can be in flight only if the leases that they end have at most this many keys on average.
const keysPerUrgent = 4

// room reports whether a write can leave, given the urgent writes in flight. Their number is
// limited because other writes wait behind them in the log. If an urgent write cannot leave, it is
// added to crowd, unless it has been stuck. Commands that attach keys have already overtaken a
// write that has been stuck, and must not do so again.
func (q *waitingWrites) room(w *Write) bool {
	if !w.Urgent || q.urgentRoom() {
		return true
	}
	if _, was := q.stuck.Get(w.number); was {
		return true
	}
	q.crowd = append(q.crowd, w)
	return false
}

// urgentRoom reports whether one more urgent write can leave.
func (q *waitingWrites) urgentRoom() bool {
	return q.urgent+q.stuck.Len() < q.limits.Ending && q.endingKeys < q.limits.Ending*keysPerUrgent
}

// takeCrowded removes and returns the first write of crowd if there is room for it, or nil.
func (q *waitingWrites) takeCrowded() *Write {
	if len(q.crowd) == 0 || !q.urgentRoom() {
		return nil
	}
	w := q.crowd[0]
	q.crowd[0] = nil
	q.crowd = q.crowd[1:]
	return w
}

// free records that writes no longer wait for a cache. takeFreed returns them.
func (q *waitingWrites) free(by lease.ID, writes []*Write) {
	q.freed = append(q.freed, freed{by, writes})
}

// takeFreed removes and returns freed writes of one cache, no more than most.
func (q *waitingWrites) takeFreed(most int) (by lease.ID, writes []*Write) {
	if len(q.freed) == 0 {
		q.freed = nil
		return 0, nil
	}
	f := &q.freed[0]
	n := min(len(f.writes), most)
	by, writes = f.by, f.writes[:n]
	if f.writes = f.writes[n:]; len(f.writes) == 0 {
		q.freed[0] = freed{}
		q.freed = q.freed[1:]
	}
	return by, writes
}

// takeReady returns the writes that have become ready since the last call, in order.
func (q *waitingWrites) takeReady(now lease.Instant) []*Write {
	out := q.ready
	q.ready = nil
	for _, w := range out {
		w.waited = lease.TTL(now - w.since)
		q.count++
		q.waits = append(q.waits, w.waited)
	}
	return out
}

// takeNew reports whether a write that was added last is ready, and if so, removes it from ready.
func (q *waitingWrites) takeNew(w *Write) bool {
	if w.state != inFlight {
		return false
	}
	q.ready = q.ready[:len(q.ready)-1] // only w has become ready
	return true
}

// takeWaits returns the wait times of the writes that takeReady has returned since the last call.
func (q *waitingWrites) takeWaits() []lease.TTL {
	out := q.waits
	q.waits = nil
	return out
}

// list returns the waiting writes, in order of admission.
func (q *waitingWrites) list() []*Write {
	return sortedByNumber(slices.Collect(maps.Keys(q.waiting)))
}
