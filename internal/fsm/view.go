package fsm

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// View is an immutable view of the state after some entry. It may be read from any goroutine.
type View struct {
	// KV is the store.
	KV *mvcc.View
	// Index and Term are those of the last applied entry.
	Index, Term uint64
	// Members are the cluster's members, in ID order.
	Members []Member
	// Removed are the IDs of the removed members, in order.
	Removed []uint64
	// Alarms are the raised alarms, ordered by member and kind.
	Alarms []Alarm
	// Version is the cluster version.
	Version ClusterVersion
	// LeaseEvents are the latest lease events, and Silences the leases that recently fell silent.
	LeaseEvents LeaseEvents
	Silences    Silences
	// Bytes is the approximate size of the state, and Quota its bound: the smallest of the members'
	// quotas, or 0 if there is none.
	Bytes Bytes
	Quota int64
	// CacheTTL is the longest time that a write may have to wait for caches: the longest TTL of
	// leases that hold ranges and of orphans, or 0 if there are none.
	CacheTTL lease.TTL
	// Access is the users and roles, or nil if there never were any.
	Access *access.State
	// Restore is the ID of the restore that produced the state, or 0. It distinguishes a restored
	// cluster from the one that was backed up.
	Restore uint64
}

// LeaseNews reports whether there are lease events, or leases that fell silent or were renewed
// again, since an earlier view, possibly that of another Machine.
func (v *View) LeaseNews(old *View) bool {
	return v.LeaseEvents.last != old.LeaseEvents.last || v.Silences.last() != old.Silences.last()
}

// Learner reports whether a member has no vote: it is a learner, or not in the state yet.
func (v *View) Learner(id uint64) bool {
	m, ok := v.Member(id)
	return !ok || m.Learner
}

// Member returns the member with an ID, and whether it exists. It shares the view's memory: the
// caller must not modify its URLs.
func (v *View) Member(id uint64) (m Member, ok bool) {
	for i := range v.Members {
		if v.Members[i].ID == id {
			return v.Members[i], true
		}
	}
	return Member{}, false
}
