package replica

import (
	"container/list"

	"leasehold.dev/lease"
)

// singles are the leases that expire separately, because some cache may have their keys: a list of
// *single, ordered by expiry. The zero value is empty.
type singles struct{ list list.List }

// single is a lease that expires separately.
type single struct {
	due      lease.Due
	decided  lease.Instant
	proposal *Proposal
	proposed bool          // in the queue or in the log
	place    *list.Element // in the list
}

func (s *single) expiry() lease.Instant { return s.decided - lease.Instant(s.due.Late) }

// add adds a lease. Most expire after the existing ones.
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

// overdue returns how far the first lease is past its expiry, 0 if there is none.
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
