package fsm

import (
	"errors"

	"leasehold.dev/internal/mvcc"
)

// These errors are outcomes of a command, next to those of the lease and
// mvcc packages.
var (
	// ErrKeyNotFound means that IgnoreValue or IgnoreLease named a key that does not exist.
	ErrKeyNotFound = errors.New("fsm: key not found")
	// ErrNoSpace means that the NoSpace alarm is raised, so nothing may grow.
	ErrNoSpace = errors.New("fsm: no space alarm is raised")
	// ErrMemberNotFound means that the command names a member that is not in the cluster.
	ErrMemberNotFound = errors.New("fsm: member not found")
	// ErrMemberExists means that a member to add has the ID of one that is, or ever was, in
	// the cluster.
	ErrMemberExists = errors.New("fsm: member exists")
	// ErrPeerURLExists means that a member has the peer URL already.
	ErrPeerURLExists = errors.New("fsm: peer URL exists")
	// ErrNotLearner means that the member to promote votes already.
	ErrNotLearner = errors.New("fsm: member is not a learner")
	// ErrLastVoter means that the only voter cannot be removed.
	ErrLastVoter = errors.New("fsm: the only voter cannot be removed")
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
	// *lease.Info for Grant, ChangeTTL, HandOver and Resume, *RevokeResult, []Alarm
	// for SetAlarm (the alarms it changed), nil for the others.
	Value any
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

// TxnResult is the outcome of a Txn: one response an executed operation, each
// a *PutResult, *DeleteResult, *mvcc.RangeResult or *TxnResult, a *lease.Info for
// Grant and Touch, or a *RevokeResult.
type TxnResult struct {
	Succeeded bool
	Responses []any
}
