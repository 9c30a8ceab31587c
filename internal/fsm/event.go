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
// Invariants: kept is only appended to, so that parts of it can be handed out,
// and replaced by a copy of its last part now and then; the last of kept, if
// there is one, has the number last, and those before it the numbers before.
type leaseEvents struct {
	kept  []LeaseEvent
	last  uint64
	taken uint64 // number of the last that was taken
	most  int
}

// happened notes an event.
func (m *Machine) happened(e LeaseEvent) {
	l := &m.events
	l.last++
	e.Seq, e.Revision = l.last, m.store.Revision()
	if len(l.kept) >= 2*l.most {
		l.kept = append(make([]LeaseEvent, 0, 2*l.most), l.kept[len(l.kept)-l.most:]...)
	}
	l.kept = append(l.kept, e)
}

// start goes on from a number, with no events.
func (l *leaseEvents) start(last uint64) { l.kept, l.last, l.taken = nil, last, last }

// at sets the revision of the last n events, none of which was taken yet: that
// of the transaction which they were part of.
func (l *leaseEvents) at(revision int64, n uint64) {
	list := l.since(l.last - n)
	for i := range list {
		list[i].Revision = revision
	}
}

// since returns the events after number seq, as far as they are kept.
func (l *leaseEvents) since(seq uint64) []LeaseEvent {
	n := min(l.last-seq, uint64(len(l.kept)))
	if n == 0 {
		return nil
	}
	return slices.Clip(l.kept[uint64(len(l.kept))-n:])
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
	if seq > m.events.last || m.events.last-seq > uint64(len(m.events.kept)) {
		return nil, fmt.Errorf("%w: after %d, there are %d up to %d",
			ErrEventsCompacted, seq, len(m.events.kept), m.events.last)
	}
	return m.events.since(seq), nil
}

// LastLeaseEvent returns the number of the last event: together with Leases it
// is where a stream of events begins.
func (m *Machine) LastLeaseEvent() uint64 { return m.events.last }
