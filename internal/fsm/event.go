package fsm

import (
	"errors"
	"fmt"
	"slices"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// LeaseEventKind is the type of a LeaseEvent.
type LeaseEventKind uint8

// The kinds of lease events.
const (
	// LeaseGranted reports a new lease. A repeated grant produces no event.
	LeaseGranted LeaseEventKind = iota + 1
	// LeaseExpired reports that a lease has expired. If it has a lock delay, it is now Delayed.
	LeaseExpired
	// LeaseReleased reports the end of a lock delay: the name and the keys are free.
	LeaseReleased
	// LeaseRevoked reports a revocation by By.
	LeaseRevoked
	// LeaseHandedOver reports a hand-over from By, the previous owner, to the owner in Info.
	LeaseHandedOver
	// LeaseResumed reports that another process of the same owner has taken over the lease.
	LeaseResumed
	// LeaseTTLChanged reports a new TTL, which is in Info.
	LeaseTTLChanged
)

var leaseEventNames = [...]string{
	LeaseGranted: "granted", LeaseExpired: "expired", LeaseReleased: "released",
	LeaseRevoked: "revoked", LeaseHandedOver: "handed over", LeaseResumed: "resumed",
	LeaseTTLChanged: "TTL changed",
}

// String describes the event in words, for logs.
func (k LeaseEventKind) String() string { return leaseEventNames[k] }

// LeaseEvent is a change to a lease. Renewals are not events. If a single command both grants and
// ends a lease, that lease has no events.
type LeaseEvent struct {
	// Seq numbers the events. There are no gaps, and all members assign the same numbers. After a
	// restore from a backup, numbering continues at a larger number.
	Seq uint64
	// Revision is the store's revision after the event. Keys that ended with the lease were deleted
	// at or before that revision.
	Revision int64
	Kind     LeaseEventKind
	// Info is the lease after the event, or its last state if it has ended. Its labels must not be
	// modified.
	Info lease.Info
	// Before is the token of the lease before it was handed over or resumed.
	Before lease.Token
	// By is the name of the caller that revoked the lease, or the owner that handed it over. It is
	// ByKey for a bound lease that ended because its key was deleted or moved.
	By string
}

// ErrEventsCompacted means that this member does not have the requested events, either because it
// no longer keeps them or because it never had them. The caller should list the leases and continue
// from there.
var ErrEventsCompacted = errors.New("fsm: lease events compacted")

// ByKey is the value of LeaseEvent.By for a bound lease that ended with its key.
const ByKey = "key"

// defaultLeaseEvents is how many events are kept, unless their total size is too large.
const defaultLeaseEvents = 16_384

// eventBytes is the approximate size of an event, excluding its lease.
const eventBytes = 64

// LeaseEvents is an immutable view of the latest lease events. Only the number of the last event is
// replicated. Members can keep different events, because after a restart or a snapshot a member
// starts with none. Any goroutine may read a LeaseEvents.
type LeaseEvents struct {
	recent recent[LeaseEvent]
	last   uint64
}

// start drops all events and continues the numbering after last.
func (l *LeaseEvents) start(last uint64) {
	*l = LeaseEvents{last: last, recent: recent[LeaseEvent]{most: l.recent.most}}
}

// step collects what one command does to leases. It is empty between commands.
type step struct {
	// before is the last token assigned before the command.
	before lease.Token
	events []LeaseEvent
	// unbound lists bound leases that may have lost their key.
	unbound []lease.ID
}

// date sets the revision of all events to their transaction's revision.
func (s *step) date(revision int64) {
	for i := range s.events {
		s.events[i].Revision = revision
	}
}

// recordEvent records an event caused by the command that is being applied.
func (m *Machine) recordEvent(e LeaseEvent) {
	s := &m.step
	if e.Kind == LeaseRevoked && e.Info.Token > s.before {
		s.events = slices.DeleteFunc(s.events, func(granted LeaseEvent) bool {
			return granted.Info.Token == e.Info.Token
		})
		return
	}
	e.Revision = m.store.Revision()
	s.events = append(s.events, e)
}

// settle completes the command that is being applied. It ends bound leases that lost their keys, in
// the order in which they lost them, and publishes the events.
//
// Bound leases are ended last. Within a transaction, an operation can therefore refer to a lease
// whose key an earlier operation deleted, and validate need not track such deletions.
func (m *Machine) settle() {
	m.endUnbound()
	m.publish()
}

// endUnbound ends bound leases that have lost their key.
func (m *Machine) endUnbound() {
	s := &m.step
	for _, id := range s.unbound {
		if m.lessor.Loose(id) {
			ended := m.endEarly(id)
			m.recordEvent(LeaseEvent{Kind: LeaseRevoked, Info: ended.Info, By: ByKey})
		}
	}
	s.unbound = s.unbound[:0]
}

// publish assigns numbers to the events and publishes them.
func (m *Machine) publish() {
	s := &m.step
	for _, e := range s.events {
		m.events.last++
		e.Seq = m.events.last
		m.events.recent.push(e, eventBytes+e.Info.Bytes()+int64(len(e.By)))
	}
	clear(s.events)
	s.events = s.events[:0]
}

// detach detaches a key from its lease.
func (m *Machine) detach(kv *mvcc.KeyValue) {
	m.lessor.Detach(kv.Key)
	m.noteUnbound(lease.ID(kv.Lease))
}

// detachAll detaches keys from their leases. It skips keys that have no lease.
func (m *Machine) detachAll(kvs []*mvcc.KeyValue) {
	for i, kv := range kvs {
		if kv.Lease == 0 {
			continue
		}
		m.lessor.Detach(kv.Key)
		if i == len(kvs)-1 || kvs[i+1].Lease != kv.Lease {
			// checking once per run of keys is enough, because a bound lease has only one key
			m.noteUnbound(lease.ID(kv.Lease))
		}
	}
}

// noteUnbound records a bound lease if it has lost its key.
func (m *Machine) noteUnbound(id lease.ID) {
	if m.lessor.Loose(id) {
		m.step.unbound = append(m.step.unbound, id)
	}
}

// After returns events after number seq, in order. If there are any, it returns at least one, but
// not necessarily all. To get the rest, the caller repeats the call with the last number received.
// After returns ErrEventsCompacted if the next event is no longer kept, or if seq is beyond the
// last event. The returned slice never changes, and the caller must not modify it.
func (l LeaseEvents) After(seq uint64) ([]LeaseEvent, error) {
	if seq > l.last || l.last-seq > uint64(l.recent.kept) {
		return nil, fmt.Errorf("%w: requested events after number %d, but only the last %d are "+
			"kept, up to number %d",
			ErrEventsCompacted, seq, l.recent.kept, l.last)
	}
	return l.recent.last(int(l.last - seq)), nil
}

// Compacted returns the number of the last event that is no longer kept.
func (l LeaseEvents) Compacted() uint64 { return l.last - uint64(l.recent.kept) }

// Last returns the number of the last event.
func (l LeaseEvents) Last() uint64 { return l.last }
