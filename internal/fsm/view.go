package fsm

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// View is an immutable view of the state after an entry. Any goroutine may read it.
type View struct {
	// KV is the store.
	KV *mvcc.View
	// Index and Term are the index and term of the last applied entry.
	Index, Term uint64
	// Members are the cluster's members, in ID order.
	Members []Member
	// Removed lists the IDs of the removed members, in order.
	Removed []uint64
	// Alarms lists the raised alarms, ordered by member and kind.
	Alarms []Alarm
	// Version is the cluster version.
	Version ClusterVersion
	// LeaseEvents are the latest lease events. Silences are the leases that recently became silent
	// or were renewed again.
	LeaseEvents LeaseEvents
	Silences    Silences
	// Bytes is the approximate size of the state. Quota is its maximum: the smallest quota of any
	// member, or 0 if there is none.
	Bytes Bytes
	Quota int64
	// CacheTTL is the maximum time that a write may have to wait for caches. It is the longest TTL
	// of any orphan or lease that holds ranges, or 0 if there are none.
	CacheTTL lease.TTL
	// Access is the users and roles, or nil if access control was never used.
	Access *access.State
	// Restore is the ID of the restore that produced the state, or 0. It distinguishes a restored
	// cluster from the cluster that was backed up.
	Restore uint64
}

// LeaseNews reports whether anything has happened to leases since an earlier view: a lease event,
// or a lease that became silent or was renewed again. The earlier view may belong to another
// Machine.
func (v *View) LeaseNews(old *View) bool {
	return v.LeaseEvents.last != old.LeaseEvents.last || v.Silences.last() != old.Silences.last()
}

// Learner reports whether a member has no vote, because it is a learner or is not in the state yet.
func (v *View) Learner(id uint64) bool {
	m, ok := v.Member(id)
	return !ok || m.Learner
}

// Member returns the member with the given ID, and whether it exists. The result shares memory with
// the view, so the caller must not modify its URLs.
func (v *View) Member(id uint64) (m Member, ok bool) {
	for i := range v.Members {
		if v.Members[i].ID == id {
			return v.Members[i], true
		}
	}
	return Member{}, false
}
