package fsm

import "leasehold.dev/internal/mvcc"

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
}
