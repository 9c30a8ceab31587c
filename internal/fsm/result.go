package fsm

import (
	"errors"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// These errors are outcomes of a command, next to those of the lease and
// mvcc packages.
var (
	// ErrKeyNotFound means that IgnoreValue or IgnoreLease named a key that does not exist.
	ErrKeyNotFound = errors.New("fsm: key not found")
	// ErrNoSpace means that the state would exceed the quota, or that the NoSpace alarm is
	// raised, so that nothing may grow.
	ErrNoSpace = errors.New("fsm: no space: the quota is used up")
	// ErrDiverged means that the Corrupt alarm is raised: somebody found that the members
	// differ, so clients change nothing until it is lowered. Leases still end.
	ErrDiverged = errors.New("fsm: corrupt alarm is raised")
	// ErrMemberNotFound means that the command names a member that is not in the cluster.
	ErrMemberNotFound = errors.New("fsm: member not found")
	// ErrMemberExists means that a member to add has the ID of one that is, or ever was, in
	// the cluster.
	ErrMemberExists = errors.New("fsm: member exists")
	// ErrPeerURLExists means that a member has the peer URL already.
	ErrPeerURLExists = errors.New("fsm: peer URL exists")
	// ErrIncarnation means that the cluster knows the member with another incarnation.
	ErrIncarnation = errors.New("fsm: the member had other data")
	// ErrNotLearner means that the member to promote votes already.
	ErrNotLearner = errors.New("fsm: member is not a learner")
	// ErrLastVoter means that the only voter cannot be removed.
	ErrLastVoter = errors.New("fsm: the only voter cannot be removed")
	// ErrSessionNotFound means that the session is not known, or has forgotten the number:
	// nothing was done now, and it is not known whether it was before.
	ErrSessionNotFound = errors.New("fsm: session not found")
	// ErrTxnTooLarge means that a transaction has too many operations, or that together they
	// read or delete too many keys.
	ErrTxnTooLarge = errors.New("fsm: transaction has too many operations, or reads " +
		"or deletes too much")
	// ErrTooManyAlarms means that there are too many alarms of members that are not there.
	ErrTooManyAlarms = errors.New("fsm: too many alarms of members that are not in the cluster: " +
		"disarm some")
	// ErrStale means that an internal command was proposed in another term.
	ErrStale = errors.New("fsm: command of another term")
)

// Result is the outcome of one command.
type Result struct {
	// Revision is the store's revision after the command.
	Revision int64
	// Err is nil, or why the command changed nothing.
	Err error
	// Value depends on the command: *PutResult, *DeleteResult, *TxnResult,
	// *lease.Info for ChangeTTL, HandOver and Resume, that or *Existing for Grant,
	// *RevokeResult, []Alarm
	// for SetAlarm (the alarms it changed), Session for OpenSession, that of the command
	// for Once, nil for the others.
	Value any
	// Repeated says that the command was done before: that of a Once, which had this result
	// then, or a grant. A lease in it has been counting since.
	Repeated bool
}

// PutResult is the outcome of a Put.
type PutResult struct {
	// Prev is the replaced pair, if asked for and there was one.
	Prev *mvcc.KeyValue
}

// DeleteResult is the outcome of a DeleteRange.
type DeleteResult struct {
	Deleted int64
	// Prev holds the deleted pairs, if asked for, in key order.
	Prev []*mvcc.KeyValue
}

// RevokeResult is the outcome of a Revoke.
type RevokeResult struct {
	// Deleted is how many keys went with the lease.
	Deleted int64
}

// Existing is the outcome of a Grant that was repeated: the lease that an earlier one made.
type Existing struct{ lease.Info }

// GrantResult returns the lease that is the outcome of a Grant, and whether an earlier one
// made it. It returns nil for the outcome of anything else but a Touch or a change of a lease.
func GrantResult(v any) (info *lease.Info, existed bool) {
	switch v := v.(type) {
	case *lease.Info:
		return v, false
	case *Existing:
		return &v.Info, true
	default:
		return nil, false
	}
}

// TxnResult is the outcome of a Txn: one response an executed operation, each
// a *PutResult, *DeleteResult, *mvcc.RangeResult or *TxnResult, a *lease.Info for
// Grant and Touch, an *Existing for a Grant that was repeated, a *RevokeResult, or for
// Draw the lease.Token.
type TxnResult struct {
	Succeeded bool
	Responses []any
}
