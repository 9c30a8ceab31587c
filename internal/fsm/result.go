package fsm

import (
	"errors"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// These errors are results of commands, in addition to those of packages lease and mvcc.
var (
	// ErrKeyNotFound means that IgnoreValue or IgnoreLease named a key that does not exist.
	ErrKeyNotFound = errors.New("fsm: key not found")
	// ErrNoSpace means that the state would exceed the quota, or that the NoSpace alarm is raised
	// and the state may not grow.
	ErrNoSpace = errors.New("fsm: no space: the quota is used up")
	// ErrDiverged means that the Corrupt alarm is raised: the members differ, so clients cannot
	// change anything until it is lowered. Leases still end.
	ErrDiverged = errors.New("fsm: corrupt alarm is raised")
	// ErrMemberNotFound means that the command names a member that is not in the cluster.
	ErrMemberNotFound = errors.New("fsm: member not found")
	// ErrMemberExists means that the ID of a new member belongs, or once belonged, to a member of
	// the cluster.
	ErrMemberExists = errors.New("fsm: member exists")
	// ErrPeerURLExists means that another member has the peer URL.
	ErrPeerURLExists = errors.New("fsm: peer URL exists")
	// ErrIncarnation means that the cluster has another incarnation of the member.
	ErrIncarnation = errors.New("fsm: the member has a different data directory")
	// ErrNotLearner means that the member to promote is already a voter.
	ErrNotLearner = errors.New("fsm: member is not a learner")
	// ErrLastVoter means that the only voter cannot be removed.
	ErrLastVoter = errors.New("fsm: the only voter cannot be removed")
	// ErrSessionNotFound means that the session is unknown, or has dropped the number. This attempt
	// changed nothing; whether an earlier one did is unknown.
	ErrSessionNotFound = errors.New("fsm: session not found")
	// ErrTxnTooLarge means that a transaction has too many operations, or that they read or delete
	// too many keys in total.
	ErrTxnTooLarge = errors.New("fsm: transaction has too many operations, or reads " +
		"or deletes too much")
	// ErrTooManyAlarms means that there are too many alarms for unknown members.
	ErrTooManyAlarms = errors.New("fsm: too many alarms of members that are not in the cluster: " +
		"disarm some")
	// ErrStale means that an internal command was proposed in another term.
	ErrStale = errors.New("fsm: command of a different term")
)

// Result is the outcome of one command.
type Result struct {
	// Revision is the store's revision after the command.
	Revision int64
	// Err is nil, or the reason why the command changed nothing.
	Err error
	// Value depends on the command: *PutResult, *DeleteResult, *TxnResult or *RevokeResult;
	// *lease.Info for ChangeTTL, HandOver and Resume; *lease.Info or *Existing for Grant; []Alarm
	// for SetAlarm (the alarms it changed); Session for OpenSession; the inner command's value for
	// Once; and nil for the others.
	Value any
	// Repeated reports that the command had already been applied: a Once, whose first result this
	// is, or a Grant. The remaining time of a lease in the result counts from that first time.
	Repeated bool
}

// PutResult is the outcome of a Put.
type PutResult struct {
	// Prev is the replaced pair, if there was one and PrevKV was set.
	Prev *mvcc.KeyValue
}

// DeleteResult is the outcome of a DeleteRange.
type DeleteResult struct {
	Deleted int64
	// Prev holds the deleted pairs in key order, if PrevKV was set.
	Prev []*mvcc.KeyValue
}

// RevokeResult is the outcome of a Revoke.
type RevokeResult struct {
	// Deleted is the number of keys deleted with the lease.
	Deleted int64
}

// Existing is the outcome of a repeated Grant: the lease that the earlier one created.
type Existing struct{ lease.Info }

// GrantResult returns the lease in the outcome of a Grant, a Touch or a change of a lease, and
// whether an earlier Grant created it. It returns nil for other outcomes.
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

// TxnResult is the outcome of a Txn. It has a response for each executed operation: a *PutResult,
// *DeleteResult, *mvcc.RangeResult or *TxnResult; for Grant and Touch a *lease.Info; for a repeated
// Grant an *Existing; a *RevokeResult; and for Draw a lease.Token.
type TxnResult struct {
	Succeeded bool
	Responses []any
}
