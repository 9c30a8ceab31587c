// Package api contains the code shared by the wire APIs. Its most important part is the table that
// maps internal errors to the errors that clients receive.
package api

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/login"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// These errors complement the errors of package replica. They mean that a request has no outcome or
// that its outcome is unknown. All of them may be retried.
var (
	// ErrUndecided means that the core did not accept a renewal because it could not decide whether
	// the renewal is allowed. This member may not have the lease yet, users or roles may have just
	// changed, or the lease may have no owner and many keys. It is never returned to clients.
	ErrUndecided = errors.New("member: cannot decide yet whether the lease may be renewed")
	// ErrTooManyRequests means that the queue is full. Nothing was done.
	ErrTooManyRequests = errors.New("member: too many requests")
	// ErrDiskFull means that this member's disk is too full even for entries from the leader.
	// Nothing was done. Another member may be able to serve the request.
	ErrDiskFull = errors.New("member: the disk is full")
	// ErrStopped means that the member is stopping.
	ErrStopped = errors.New("member: stopped")
	// ErrTimeout means that the request was not completed in time. It may still take effect.
	ErrTimeout = errors.New("member: request timed out")
)

// A TimeoutError is an ErrTimeout that includes the cause of the delay.
type TimeoutError struct {
	// Caches is the time that the command may have spent waiting for caches, or 0 if no lease holds
	// a range.
	Caches lease.TTL
	// Outage is the reason why the cluster is unavailable. It is empty if the member cannot
	// determine it.
	Outage string
}

// Timeout returns the error for a command that timed out, possibly after waiting for caches for the
// given time.
func Timeout(caches lease.TTL) error {
	if caches == 0 {
		return ErrTimeout
	}
	return &TimeoutError{Caches: caches}
}

// Error returns the text of ErrTimeout, followed by the possible cause of the delay.
func (e *TimeoutError) Error() string { return ErrTimeout.Error() + e.why() }

func (e *TimeoutError) why() string {
	if e.Outage != "" {
		return ", " + e.Outage
	}
	return fmt.Sprintf(", possibly after waiting up to %d ms for a cache that does not respond "+
		"(leasehold lease watch shows which); it may still take effect", e.Caches)
}

// facts returns the metadata of the error.
func (e *TimeoutError) facts() map[string]string {
	m := make(map[string]string)
	if e.Caches > 0 {
		m["cache_wait_ms"] = number(e.Caches)
	}
	if e.Outage != "" {
		m[cause.Key] = string(cause.NoLeader)
	}
	return m
}

// Unwrap returns ErrTimeout.
func (e *TimeoutError) Unwrap() error { return ErrTimeout }

// wire is the only table that maps internal errors to the errors that clients receive. In each
// entry, to is the etcd API error, with etcd's exact text, because client libraries compare that
// text. reason is reported for a failed command in leasehold.v1.
var wire = []struct {
	from, to error
	reason   pb.Reason
	retry    lease.TTL // delay before a retry, 0 if unknown
}{
	{from: lease.ErrNotFound, to: rpctypes.ErrGRPCLeaseNotFound, reason: notFound},
	{from: lease.ErrExists, to: rpctypes.ErrGRPCLeaseExist, reason: idTaken},
	// An expiring lease may still be renewed, but callers must not rely on that. Holders are safe
	// if they assume that the lease is gone.
	{from: lease.ErrExpiring, to: rpctypes.ErrGRPCLeaseNotFound, reason: notFound},
	{
		from: lease.ErrBadID, reason: invalid,
		to: status.Error(codes.InvalidArgument, "etcdserver: lease ID must be positive"),
	},
	{
		from: lease.ErrBound, reason: invalid,
		to: status.Error(codes.InvalidArgument, text(lease.ErrBound)),
	},
	{from: lease.ErrNotPrimary, to: rpctypes.ErrGRPCLeaderChanged, reason: unknown},
	{from: lease.ErrCorrupt, to: rpctypes.ErrGRPCCorrupt, reason: unavailable},

	{from: mvcc.ErrCompacted, to: rpctypes.ErrGRPCCompacted, reason: compacted},
	{from: mvcc.ErrFutureRevision, to: rpctypes.ErrGRPCFutureRev, reason: future},

	{from: fsm.ErrKeyNotFound, to: rpctypes.ErrGRPCKeyNotFound, reason: noKey},
	{from: fsm.ErrNoSpace, to: rpctypes.ErrGRPCNoSpace, reason: noSpace},
	{from: fsm.ErrDiverged, to: rpctypes.ErrGRPCCorrupt, reason: unavailable},
	{
		from: fsm.ErrSessionNotFound, reason: pb.Reason_REASON_SESSION_NOT_FOUND,
		to: status.Error(codes.FailedPrecondition, "leasehold: session not found"),
	},
	{from: fsm.ErrEventsCompacted, to: rpctypes.ErrGRPCCompacted, reason: compacted},
	{from: fsm.ErrMemberNotFound, to: rpctypes.ErrGRPCMemberNotFound, reason: invalid},
	{from: fsm.ErrMemberExists, to: rpctypes.ErrGRPCMemberExist, reason: invalid},
	{from: fsm.ErrPeerURLExists, to: rpctypes.ErrGRPCPeerURLExist, reason: invalid},
	{from: fsm.ErrNotLearner, to: rpctypes.ErrGRPCMemberNotLearner, reason: invalid},
	// Removing the member would leave no started member.
	{from: fsm.ErrLastVoter, to: rpctypes.ErrGRPCMemberNotEnoughStarted, reason: invalid},
	{from: fsm.ErrVersion, to: rpctypes.ErrGRPCInvalidDowngradeTargetVersion, reason: invalid},
	{from: fsm.ErrDowngrade, to: rpctypes.ErrGRPCDowngradeInProcess, reason: invalid},
	{from: fsm.ErrNoDowngrade, to: rpctypes.ErrGRPCNoInflightDowngrade, reason: invalid},
	{
		from: fsm.ErrBadHolds, reason: invalid,
		to: status.Error(codes.InvalidArgument, text(fsm.ErrBadHolds)),
	},
	{
		from: fsm.ErrTooManyHolds, reason: pb.Reason_REASON_TOO_MANY_HOLDS,
		to: status.Error(codes.ResourceExhausted, text(fsm.ErrTooManyHolds)),
	},
	{
		from: fsm.ErrOwnerHolds, reason: pb.Reason_REASON_TOO_MANY_HOLDS,
		to: status.Error(codes.ResourceExhausted, text(fsm.ErrOwnerHolds)),
	},
	{
		from: fsm.ErrUnreadable, reason: invalid,
		to: status.Error(codes.InvalidArgument, text(fsm.ErrUnreadable)),
	},
	{from: fsm.ErrTxnTooLarge, to: rpctypes.ErrGRPCTooManyOps, reason: invalid},
	{
		from: fsm.ErrTooManyAlarms, reason: invalid,
		to: status.Error(codes.ResourceExhausted, text(fsm.ErrTooManyAlarms)),
	},
	{from: fsm.ErrStale, to: rpctypes.ErrGRPCLeaderChanged, reason: unavailable},

	{from: access.ErrPermissionDenied, to: rpctypes.ErrGRPCPermissionDenied, reason: denied},
	{from: access.ErrOldRevision, to: rpctypes.ErrGRPCAuthOldRevision, reason: loggedOut},
	{from: access.ErrInvalidLogin, to: rpctypes.ErrGRPCInvalidAuthToken, reason: loggedOut},
	{from: access.ErrUserEmpty, to: rpctypes.ErrGRPCUserEmpty, reason: loggedOut},
	{from: access.ErrUserExists, to: rpctypes.ErrGRPCUserAlreadyExist, reason: invalid},
	{from: access.ErrUserNotFound, to: rpctypes.ErrGRPCUserNotFound, reason: denied},
	{from: access.ErrRoleEmpty, to: rpctypes.ErrGRPCRoleEmpty, reason: invalid},
	{from: access.ErrRoleExists, to: rpctypes.ErrGRPCRoleAlreadyExist, reason: invalid},
	{from: access.ErrRoleNotFound, to: rpctypes.ErrGRPCRoleNotFound, reason: invalid},
	{from: access.ErrRoleNotGranted, to: rpctypes.ErrGRPCRoleNotGranted, reason: invalid},
	{
		from: access.ErrPermissionNotGranted, reason: invalid,
		to: rpctypes.ErrGRPCPermissionNotGranted,
	},
	{
		from: access.ErrPermissionNotGiven, reason: invalid,
		to: rpctypes.ErrGRPCPermissionNotGiven,
	},
	{from: access.ErrRootUserNotExist, to: rpctypes.ErrGRPCRootUserNotExist, reason: invalid},
	{from: access.ErrRootRoleNotExist, to: rpctypes.ErrGRPCRootRoleNotExist, reason: invalid},
	{from: access.ErrInvalidAuthMgmt, to: rpctypes.ErrGRPCInvalidAuthMgmt, reason: invalid},
	{from: access.ErrNotEnabled, to: rpctypes.ErrGRPCAuthNotEnabled, reason: invalid},

	{from: login.ErrInvalid, to: rpctypes.ErrGRPCInvalidAuthToken, reason: loggedOut},
	{from: login.ErrRefused, to: rpctypes.ErrGRPCAuthFailed, reason: invalid},
	{
		from: login.ErrPasswordTooLong, reason: invalid,
		to: status.Error(codes.InvalidArgument, text(login.ErrPasswordTooLong)),
	},
	{
		from: login.ErrBusy, reason: unavailable, retry: retrySoon,
		to: rpctypes.ErrGRPCRequestTooManyRequests,
	},
	{
		from: login.ErrTooManyFailures, reason: unavailable, retry: 5000,
		to: status.Error(codes.ResourceExhausted, text(login.ErrTooManyFailures)),
	},
	{
		from: login.ErrVerifyOnly, reason: invalid,
		to: status.Error(codes.FailedPrecondition, text(login.ErrVerifyOnly)),
	},
	{
		from: login.ErrNoTokens, reason: invalid,
		to: status.Error(codes.FailedPrecondition, text(login.ErrNoTokens)),
	},

	{from: replica.ErrNoLeader, to: rpctypes.ErrGRPCNoLeader, reason: unavailable, retry: retrySoon},
	{from: replica.ErrLeaderChanged, to: rpctypes.ErrGRPCLeaderChanged, reason: unknown},
	{from: replica.ErrTooLarge, to: rpctypes.ErrGRPCRequestTooLarge, reason: invalid},
	{
		from: replica.ErrVersion, reason: invalid,
		to: status.Error(codes.FailedPrecondition, "the cluster version does not support this command"),
	},
	{
		from: replica.ErrOverloaded, reason: unavailable, retry: retrySoon,
		to: rpctypes.ErrGRPCRequestTooManyRequests,
	},
	{from: replica.ErrInternal, to: rpctypes.ErrGRPCPermissionDenied, reason: denied},
	{from: replica.ErrUnhealthy, to: rpctypes.ErrGRPCUnhealthy, reason: unavailable},
	{from: replica.ErrTooManyLearners, to: rpctypes.ErrGRPCTooManyLearners, reason: unavailable},
	{from: replica.ErrLearnerNotReady, to: rpctypes.ErrGRPCLearnerNotReady, reason: unavailable},
	{from: replica.ErrBadTransferee, to: rpctypes.ErrGRPCBadLeaderTransferee, reason: invalid},

	{from: ErrTooDeep, to: rpctypes.ErrGRPCTooManyOps, reason: invalid},
	{from: ErrDuplicateKey, to: rpctypes.ErrGRPCDuplicateKey, reason: invalid},
	{
		from: ErrTooManyRequests, reason: unavailable, retry: retrySoon,
		to: rpctypes.ErrGRPCRequestTooManyRequests,
	},
	{from: ErrDiskFull, to: rpctypes.ErrGRPCNoSpace, reason: unavailable, retry: retrySoon},
	{from: ErrStopped, to: rpctypes.ErrGRPCStopped, reason: unknown},
	{from: ErrTimeout, to: rpctypes.ErrGRPCTimeout, reason: unknown},

	{from: context.Canceled, to: rpctypes.ErrGRPCCanceled, reason: unknown},
	{from: context.DeadlineExceeded, to: rpctypes.ErrGRPCDeadlineExceeded, reason: unknown},
}

// Error returns the gRPC status of err for etcd API clients. A nil error or a gRPC status is
// returned unchanged. As in etcd, an error that is not in the table becomes Unknown and keeps its
// text.
func Error(err error) error {
	if err == nil {
		return nil
	}
	for i := range wire {
		if err == wire[i].from { //nolint:errorlint // the common case, without unwrapping
			return wire[i].to
		}
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return withFacts(translated(err), err)
}

// translated is Error for errors that are not in the table but may wrap one that is.
func translated(err error) error {
	// Append the cause, as etcd does in "request timed out, possibly due to ...".
	if late := new(TimeoutError); errors.As(err, &late) {
		return status.Error(codes.Unavailable, rpctypes.ErrTimeout.Error()+late.why())
	}
	var ttl *lease.TTLError
	if errors.As(err, &ttl) && ttl.Got > ttl.Max {
		return rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	if keys := new(lease.KeyLimitError); errors.As(err, &keys) {
		return status.Error(codes.ResourceExhausted, "etcdserver: "+text(keys)+" (--lease-max-keys)")
	}
	if often := new(RateError); errors.As(err, &often) {
		return rpctypes.ErrGRPCRequestTooManyRequests // the error that etcd clients recognize
	}
	for i := range wire {
		if errors.Is(err, wire[i].from) {
			return wire[i].to
		}
	}
	return status.Error(refusal(err), text(err))
}

// refusal returns the code for an error that carries data. Such errors keep their text because etcd
// has no equivalent.
func refusal(err error) codes.Code {
	if r := dataOf(err).reason; r != pb.Reason_REASON_UNSPECIFIED {
		return nativeCodes[r]
	}
	return codes.Unknown
}

// ProposalError is Error for a proposed command. As in etcd, if the caller's deadline passes while
// the outcome is unknown, the error is a timeout of the service. This warns clients that the
// command may have taken effect. A missing leader is also reported as a timeout, because etcd
// clients expect one when a write has no quorum.
func ProposalError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return rpctypes.ErrGRPCTimeout
	}
	return ReadError(err)
}

// ReadError is Error for a read of keys or members that required a confirm round. As in etcd, a
// call that gives up waiting for a leader gets a timeout error. Only renewals, lease queries, and
// calls that require a leader get ErrNoLeader.
func ReadError(err error) error {
	if errors.Is(err, replica.ErrNoLeader) {
		return rpctypes.ErrGRPCTimeout
	}
	return Error(err)
}
