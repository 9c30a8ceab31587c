package fsm

import (
	"errors"
	"fmt"
	"slices"

	"leasehold.dev/internal/mvcc"
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

var leaseEventNames = [...]string{
	LeaseGranted: "granted", LeaseExpired: "expired", LeaseReleased: "released",
	LeaseRevoked: "revoked", LeaseHandedOver: "handed over", LeaseResumed: "resumed",
	LeaseTTLChanged: "TTL changed",
}

// String returns the event in words, as they stand in logs.
func (k LeaseEventKind) String() string { return leaseEventNames[k] }

// LeaseEvent is something that happened to a lease. Renewals are none, and of a lease that
// one command has granted and ended nobody is told anything.
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
	// Before is the token that the lease had before it was handed over or resumed.
	Before lease.Token
	// By is who revoked it, or handed it over; ByKey for a bound lease that ended because
	// its key went, or moved.
	By string
}

// ErrEventsCompacted means that the events asked for are no longer kept by this
// member, or have never been: the caller lists the leases, and goes on from there.
var ErrEventsCompacted = errors.New("fsm: lease events compacted")

// ByKey says in a LeaseEvent that it was no revocation that ended a lease.
const ByKey = "key"

// defaultLeaseEvents is how many events are kept, if they are not too large.
const defaultLeaseEvents = 16_384

// eventBytes is about what an event takes, beside the lease.
const eventBytes = 64

// LeaseEvents is an immutable picture of the last events of leases. They are no part
// of the replicated state, only the number of the last one is: what a member keeps
// differs from what others keep, since after a restart or a snapshot it has only
// what came since. Any goroutine may read it.
type LeaseEvents struct {
	recent recent[LeaseEvent]
	last   uint64
}

// start goes on from a number, with no events.
func (l *LeaseEvents) start(last uint64) {
	*l = LeaseEvents{last: last, recent: recent[LeaseEvent]{most: l.recent.most}}
}

// step is what one command does to leases. It is empty between commands.
type step struct {
	// before is the last token before the command.
	before lease.Token
	events []LeaseEvent
	// loose are bound leases that may have no key any more.
	loose []lease.ID
}

// date sets the revision of the events: that of the transaction which they are part of.
func (s *step) date(revision int64) {
	for i := range s.events {
		s.events[i].Revision = revision
	}
}

// happened notes an event of the command that is being applied.
func (m *Machine) happened(e LeaseEvent) {
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

// settle ends the command that is being applied: the bound leases end whose keys it has
// taken away, in the order in which it did, and what happened is told.
//
// They end last, so that an operation of a transaction may name a lease whose key one
// before it has deleted, and validate need not know.
func (m *Machine) settle() {
	m.endLoose()
	m.tell()
}

// endLoose ends the bound leases that have no key any more.
func (m *Machine) endLoose() {
	s := &m.step
	for _, id := range s.loose {
		if m.lessor.Loose(id) {
			ended := m.endEarly(id)
			m.happened(LeaseEvent{Kind: LeaseRevoked, Info: ended.Info, By: ByKey})
		}
	}
	s.loose = s.loose[:0]
}

// tell numbers what happened to leases, for followers of events.
func (m *Machine) tell() {
	s := &m.step
	for _, e := range s.events {
		m.events.last++
		e.Seq = m.events.last
		m.events.recent.push(e, eventBytes+e.Info.Bytes()+int64(len(e.By)))
	}
	clear(s.events)
	s.events = s.events[:0]
}

// detach takes a key off the lease that it is on.
func (m *Machine) detach(kv *mvcc.KeyValue) {
	m.lessor.Detach(kv.Key)
	m.loosen(lease.ID(kv.Lease))
}

// detachAll is detach for keys that may be on no lease.
func (m *Machine) detachAll(kvs []*mvcc.KeyValue) {
	for i, kv := range kvs {
		if kv.Lease == 0 {
			continue
		}
		m.lessor.Detach(kv.Key)
		if i == len(kvs)-1 || kvs[i+1].Lease != kv.Lease {
			m.loosen(lease.ID(kv.Lease)) // not for each of many: what is bound has one
		}
	}
}

// loosen notes a lease that has lost its only key.
func (m *Machine) loosen(id lease.ID) {
	if m.lessor.Loose(id) {
		m.step.loose = append(m.step.loose, id)
	}
}

// After returns the events after number seq, or as many of the first of them as
// lie together: the caller goes on after the last of those until there are none.
// It returns ErrEventsCompacted if the first of them is not kept, or if the number
// seq is still to come. The caller must not change them; they stay as they are.
func (l LeaseEvents) After(seq uint64) ([]LeaseEvent, error) {
	if seq > l.last || l.last-seq > uint64(l.recent.kept) {
		return nil, fmt.Errorf("%w: after %d, there are %d up to %d",
			ErrEventsCompacted, seq, l.recent.kept, l.last)
	}
	return l.recent.last(int(l.last - seq)), nil
}

// Compacted returns the number up to which no event is kept.
func (l LeaseEvents) Compacted() uint64 { return l.last - uint64(l.recent.kept) }

// Last returns the number of the last event.
func (l LeaseEvents) Last() uint64 { return l.last }
