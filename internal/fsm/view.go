package fsm

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// View is an immutable picture of the state after some entry. It may be read
// from any goroutine for as long as it is held.
type View struct {
	// KV is the store.
	KV *mvcc.View
	// Index and Term are those of the last applied entry.
	Index, Term uint64
	// Members are the cluster's members, in ID order.
	Members []Member
	// Removed are the IDs of the members that were removed, in order.
	Removed []uint64
	// Alarms are the raised alarms, in order of member and kind.
	Alarms []Alarm
	// Version is the cluster version.
	Version ClusterVersion
	// LeaseEvents are the last events of leases, and Silences the leases that fell
	// silent lately.
	LeaseEvents LeaseEvents
	Silences    Silences
	// Bytes is about what all of the state takes, and Quota how much it may: the smallest of
	// the members' quotas, 0 if there is none.
	Bytes Bytes
	Quota int64
	// CacheTTL is for how long a write may have to wait for caches: the longest TTL of the
	// leases that hold ranges, and of orphans; 0 if there are none.
	CacheTTL lease.TTL
	// Access is the users and roles, nil as long as there never were any.
	Access *access.State
	// Restore is the ID of the restore that the state comes from, 0 if it comes from none. It tells
	// a restored cluster from the one that made the backup.
	Restore uint64
}

// LeaseNews reports whether something happened to leases, or some fell silent or were
// heard again, since an earlier view, possibly that of another Machine.
func (v *View) LeaseNews(old *View) bool {
	return v.LeaseEvents.last != old.LeaseEvents.last || v.Silences.last() != old.Silences.last()
}

// Learner reports whether a member has no vote: it is a learner, or not in the state yet.
func (v *View) Learner(id uint64) bool {
	m, ok := v.Member(id)
	return !ok || m.Learner
}

// Member returns the member with an ID, and whether there is one. What its URLs
// stand in is the view's: the caller must not change it.
func (v *View) Member(id uint64) (m Member, ok bool) {
	for i := range v.Members {
		if v.Members[i].ID == id {
			return v.Members[i], true
		}
	}
	return Member{}, false
}
