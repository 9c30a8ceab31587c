package fsm

import (
	"errors"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// These errors are results of commands, in addition to the errors of packages lease and mvcc.
var (
	// ErrKeyNotFound means that a put with IgnoreValue or IgnoreLease named a key that does not
	// exist.
	ErrKeyNotFound = errors.New("fsm: key not found")
	// ErrNoSpace means that the state would exceed the quota, or that the NoSpace alarm is raised
	// and the state must not grow.
	ErrNoSpace = errors.New("fsm: no space: the quota is used up")
	// ErrDiverged means that the Corrupt alarm is raised because members differ. Clients cannot
	// change anything until the alarm is cleared. Leases still end.
	ErrDiverged = errors.New("fsm: corrupt alarm is raised")
	// ErrMemberNotFound means that the command names a member that is not in the cluster.
	ErrMemberNotFound = errors.New("fsm: member not found")
	// ErrMemberExists means that the ID of a new member belongs to a current or former member of
	// the cluster.
	ErrMemberExists = errors.New("fsm: member exists")
	// ErrPeerURLExists means that another member already has the peer URL.
	ErrPeerURLExists = errors.New("fsm: peer URL exists")
	// ErrIncarnation means that the cluster has recorded a different incarnation of the member.
	ErrIncarnation = errors.New("fsm: the member has a different data directory")
	// ErrNotLearner means that the member to promote is already a voter.
	ErrNotLearner = errors.New("fsm: member is not a learner")
	// ErrLastVoter means that the only voter cannot be removed.
	ErrLastVoter = errors.New("fsm: the only voter cannot be removed")
	// ErrSessionNotFound means that the session is unknown, or has dropped the number. This attempt
	// changed nothing, but an earlier one might have.
	ErrSessionNotFound = errors.New("fsm: session not found")
	// ErrTxnTooLarge means that a transaction has too many operations, or that its operations read
	// or delete too many keys in total.
	ErrTxnTooLarge = errors.New("fsm: transaction has too many operations, or reads " +
		"or deletes too much")
	// ErrTooManyAlarms means that there are too many alarms of unknown members.
	ErrTooManyAlarms = errors.New("fsm: too many alarms for members that are not in the cluster: " +
		"disarm some")
	// ErrStale means that an internal command was proposed in a different term.
	ErrStale = errors.New("fsm: command from a different term")
)

// Result is the outcome of one command.
type Result struct {
	// Revision is the store's revision after the command.
	Revision int64
	// Err is nil, or explains why the command changed nothing.
	Err error
	// Value depends on the command. It is a *PutResult, *DeleteResult, *TxnResult or *RevokeResult
	// for the command of that name. For Grant, it is a *lease.Info or an *Existing. For ChangeTTL,
	// HandOver and Resume, it is a *lease.Info. For SetAlarm, it is a []Alarm with the alarms that
	// changed. For OpenSession, it is a Session. For Once, it is the value of the inner command.
	// For all others, it is nil.
	Value any
	// Repeated reports that the command had already been applied. The command is either a Once,
	// which returns its first result, or a Grant. The remaining time of a lease in the result
	// counts from when the command was first applied.
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
	// Prev contains the deleted pairs in key order, if PrevKV was set.
	Prev []*mvcc.KeyValue
}

// RevokeResult is the outcome of a Revoke.
type RevokeResult struct {
	// Deleted is the number of keys deleted with the lease.
	Deleted int64
}

// Existing is the outcome of a repeated Grant: the lease created by the first request.
type Existing struct{ lease.Info }

// GrantResult returns the lease in the outcome of a Grant, a Touch or a change of a lease, and
// whether an earlier Grant created the lease. It returns nil for all other outcomes.
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

// TxnResult is the outcome of a Txn. It has one response per executed operation: a *PutResult,
// *DeleteResult, *mvcc.RangeResult, *TxnResult or *RevokeResult; a *lease.Info for Grant and Touch;
// an *Existing for a repeated Grant; and a lease.Token for Draw.
type TxnResult struct {
	Succeeded bool
	Responses []any
}
