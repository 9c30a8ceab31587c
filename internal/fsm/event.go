package fsm

import (
	"errors"
	"fmt"
	"slices"

	"leasehold.dev/lease"
)

// LeaseEventKind says what happened to a lease.
type LeaseEventKind uint8

// The kinds of events.
const (
	// LeaseGranted: a repeated grant is none.
	LeaseGranted LeaseEventKind = iota + 1
	// LeaseExpired: it is over. If it has a lock delay, it is Delayed now.
	LeaseExpired
	// LeaseReleased: its lock delay has passed, and its name and keys are free.
	LeaseReleased
	// LeaseRevoked by By.
	LeaseRevoked
	// LeaseHandedOver by By, who owned it, to the owner of Info.
	LeaseHandedOver
	// LeaseResumed by another process of its owner.
	LeaseResumed
	// LeaseTTLChanged to the TTL of Info.
	LeaseTTLChanged
)

// LeaseEvent is something that happened to a lease. Renewals are none.
type LeaseEvent struct {
	// Seq numbers the events, alike on all members and without gaps. After a
	// backup was restored it goes on at some larger number.
	Seq uint64
	// Revision is the store's after the event: keys that went with the lease went
	// at or before it.
	Revision int64
	Kind     LeaseEventKind
	// Info is the lease after the event, or as it was last. Its labels must not
	// be changed.
	Info lease.Info
	// By is who revoked it, or handed it over.
	By string
}

// ErrEventsCompacted means that the events asked for are no longer kept by this
// member, or have never been: the caller lists the leases, and goes on from there.
var ErrEventsCompacted = errors.New("fsm: lease events compacted")

// defaultLeaseEvents is how many events are kept.
const defaultLeaseEvents = 16_384

// leaseEvents keeps the last events. They are no part of the replicated state,
// only the number of the last one is: after a restart a member has those that
// it applied since its snapshot.
//
// Invariants: chunks are full but for the last, and are only appended to, so that
// parts of them can be handed out; together they have the last kept events, of
// which the newest has the number last.
type leaseEvents struct {
	chunks [][]LeaseEvent
	kept   int
	last   uint64
	taken  uint64 // number of the last that was taken
	most   int
}

// chunkLen is how many events a chunk holds, and are kept in excess at most.
func (l *leaseEvents) chunkLen() int { return max(1, min(512, l.most/8)) }

// start goes on from a number, with no events.
func (l *leaseEvents) start(last uint64) { *l = leaseEvents{last: last, taken: last, most: l.most} }

// happened notes an event.
func (m *Machine) happened(e LeaseEvent) {
	l := &m.events
	size := l.chunkLen()
	if n := len(l.chunks); n == 0 || len(l.chunks[n-1]) == size {
		if l.kept >= l.most+size {
			l.chunks[0] = nil
			l.chunks = l.chunks[1:]
			l.kept -= size
		}
		l.chunks = append(l.chunks, make([]LeaseEvent, 0, size))
	}
	l.last++
	l.kept++
	e.Seq, e.Revision = l.last, m.store.Revision()
	chunk := &l.chunks[len(l.chunks)-1]
	*chunk = append(*chunk, e)
}

// at sets the revision of the last n events, none of which was taken yet: that
// of the transaction which they were part of.
func (l *leaseEvents) at(revision int64, n uint64) {
	for c := len(l.chunks) - 1; c >= 0; c-- {
		chunk := l.chunks[c]
		for i := len(chunk) - 1; i >= 0 && chunk[i].Seq > l.last-n; i-- {
			chunk[i].Revision = revision
		}
		if chunk[0].Seq <= l.last-n {
			return
		}
	}
}

// since returns the events after number seq, as far as they are kept. It copies
// them only if they are in several chunks.
func (l *leaseEvents) since(seq uint64) []LeaseEvent {
	left := int(min(l.last-seq, uint64(l.kept)))
	if left == 0 {
		return nil
	}
	c := len(l.chunks) - 1
	if chunk := l.chunks[c]; left <= len(chunk) {
		return slices.Clip(chunk[len(chunk)-left:])
	}
	for n := len(l.chunks[c]); n < left; n += len(l.chunks[c]) {
		c--
	}
	all := slices.Concat(l.chunks[c:]...)
	return all[len(all)-left:]
}

// TakeLeaseEvents returns the events of leases since the last call, in order.
// If there were more than are kept, the first of them are missing. The caller
// must not change them; they stay as they are.
func (m *Machine) TakeLeaseEvents() []LeaseEvent {
	out := m.events.since(m.events.taken)
	m.events.taken = m.events.last
	return out
}

// LeaseEvents returns the events after number seq, none if that is the last, or
// ErrEventsCompacted. What a member keeps differs from what others keep: after a
// restart or a snapshot it has only what came since. The caller must not change
// them; they stay as they are.
func (m *Machine) LeaseEvents(seq uint64) ([]LeaseEvent, error) {
	l := &m.events
	if seq > l.last || l.last-seq > uint64(l.kept) {
		return nil, fmt.Errorf("%w: after %d, there are %d up to %d",
			ErrEventsCompacted, seq, l.kept, l.last)
	}
	return l.since(seq), nil
}

// LastLeaseEvent returns the number of the last event: together with Leases it
// is where a stream of events begins.
func (m *Machine) LastLeaseEvent() uint64 { return m.events.last }
