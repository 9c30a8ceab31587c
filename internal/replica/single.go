package replica

import (
	"container/list"

	"leasehold.dev/lease"
)

// singles lists the leases that expire separately because their keys may be cached. It contains
// *single values, sorted by expiry. The zero value is empty.
type singles struct{ list list.List }

// single is a lease that expires separately.
type single struct {
	due      lease.Due
	decided  lease.Instant
	proposal *Proposal
	proposed bool          // whether it is already in the queue or the log
	place    *list.Element // position in the list
}

func (s *single) expiry() lease.Instant { return s.decided - lease.Instant(s.due.Late) }

// add adds a lease. Most leases expire after the ones already in the list.
func (l *singles) add(s *single) {
	before := l.list.Back()
	for before != nil && before.Value.(*single).expiry() > s.expiry() {
		before = before.Prev()
	}
	if before == nil {
		s.place = l.list.PushFront(s)
	} else {
		s.place = l.list.InsertAfter(s, before)
	}
}

// remove removes a lease whose outcome is known.
func (l *singles) remove(s *single) { l.list.Remove(s.place) }

func (l *singles) any() bool { return l.list.Len() > 0 }

// overdue returns how long ago the first lease expired, or 0 if the list is empty.
func (l *singles) overdue(now lease.Instant) lease.TTL {
	if !l.any() {
		return 0
	}
	return lease.TTL(now - l.list.Front().Value.(*single).expiry())
}

// unproposed returns the commands that are not in the queue yet, sorted by expiry.
func (l *singles) unproposed() (all []*Proposal) {
	for e := l.list.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*single); !s.proposed {
			all = append(all, s.proposal)
		}
	}
	return all
}
