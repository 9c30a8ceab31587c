package replica

import (
	"container/list"

	"leasehold.dev/lease"
)

// singles are the leases that expire by themselves, because some cache may have their keys: each a
// *single, by expiry. The zero value is empty.
type singles struct{ list list.List }

// single is a lease that expires by itself.
type single struct {
	due      lease.Due
	decided  lease.Instant
	proposal *Proposal
	proposed bool          // it is in the queue, or in the log
	place    *list.Element // among the others
}

func (s *single) expiry() lease.Instant { return s.decided - lease.Instant(s.due.Late) }

// add adds a lease. Most expire after those that are there.
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

// remove takes out a lease, because the outcome is known.
func (l *singles) remove(s *single) { l.list.Remove(s.place) }

// any reports whether there are any.
func (l *singles) any() bool { return l.list.Len() > 0 }

// overdue is for how long the first of the leases has been past its expiry, 0 if there is none.
func (l *singles) overdue(now lease.Instant) lease.TTL {
	if !l.any() {
		return 0
	}
	return lease.TTL(now - l.list.Front().Value.(*single).expiry())
}

// unproposed returns the commands that are not in the queue yet, by expiry.
func (l *singles) unproposed() (all []*Proposal) {
	for e := l.list.Front(); e != nil; e = e.Next() {
		if s := e.Value.(*single); !s.proposed {
			all = append(all, s.proposal)
		}
	}
	return all
}
