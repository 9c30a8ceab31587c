// Package api holds what the wire APIs share: the one table from the
// service's errors to those that clients see.
package api

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// These errors are the member's own, next to those of package replica: they say
// why a request has no outcome, or that its outcome is not known. All of them
// may be retried.
var (
	// ErrTooManyRequests means that the queue is full; nothing was done.
	ErrTooManyRequests = errors.New("member: too many requests")
	// ErrStopped means that the member is stopping.
	ErrStopped = errors.New("member: stopped")
	// ErrTimeout means that the request was not done in time; it may still take effect.
	ErrTimeout = errors.New("member: request timed out")
)

// A TimeoutError is ErrTimeout, and says what the request waited for.
type TimeoutError struct {
	// Caches is for how long a command may have waited for caches, while leases hold ranges.
	Caches lease.TTL
	// Outage says why the cluster does nothing now, if the member knows.
	Outage string
}

// Timeout returns ErrTimeout for a command that may have had to wait so long for caches.
func Timeout(caches lease.TTL) error {
	if caches == 0 {
		return ErrTimeout
	}
	return &TimeoutError{Caches: caches}
}

// Error says what the command may have waited for.
func (e *TimeoutError) Error() string { return ErrTimeout.Error() + e.why() }

func (e *TimeoutError) why() string {
	if e.Outage != "" {
		return ", " + e.Outage
	}
	return fmt.Sprintf(", possibly while it waited up to %d ms for a cache that does not answer "+
		"(leasehold lease watch tells which); it may still be done", e.Caches)
}

// Unwrap returns ErrTimeout.
func (e *TimeoutError) Unwrap() error { return ErrTimeout }

// wire is the single table from the service's errors to what clients see: to is
// what those of the etcd API do, with etcd's texts, since client libraries compare
// them; reason is what leasehold.v1 tells of a command that ends so.
var wire = []struct {
	from, to error
	reason   pb.Reason
}{
	{lease.ErrNotFound, rpctypes.ErrGRPCLeaseNotFound, notFound},
	{lease.ErrExists, rpctypes.ErrGRPCLeaseExist, idTaken},
	// An expiring lease may come back, but whoever is told so must not count
	// on it: for a holder the safe answer is that it is gone.
	{lease.ErrExpiring, rpctypes.ErrGRPCLeaseNotFound, notFound},
	{
		lease.ErrBadID,
		status.Error(codes.InvalidArgument, "etcdserver: lease ID must be positive"), invalid,
	},
	{lease.ErrBound, status.Error(codes.InvalidArgument, text(lease.ErrBound)), invalid},
	{lease.ErrNotPrimary, rpctypes.ErrGRPCLeaderChanged, unknown},
	{lease.ErrCorrupt, rpctypes.ErrGRPCCorrupt, unavailable},

	{mvcc.ErrCompacted, rpctypes.ErrGRPCCompacted, compacted},
	{mvcc.ErrFutureRevision, rpctypes.ErrGRPCFutureRev, future},

	{fsm.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound, noKey},
	{fsm.ErrNoSpace, rpctypes.ErrGRPCNoSpace, noSpace},
	{fsm.ErrDiverged, rpctypes.ErrGRPCCorrupt, unavailable},
	{
		fsm.ErrSessionNotFound,
		status.Error(codes.FailedPrecondition, "leasehold: session not found"),
		pb.Reason_REASON_SESSION_NOT_FOUND,
	},
	{fsm.ErrEventsCompacted, rpctypes.ErrGRPCCompacted, compacted},
	{fsm.ErrMemberNotFound, rpctypes.ErrGRPCMemberNotFound, invalid},
	{fsm.ErrMemberExists, rpctypes.ErrGRPCMemberExist, invalid},
	{fsm.ErrPeerURLExists, rpctypes.ErrGRPCPeerURLExist, invalid},
	{fsm.ErrNotLearner, rpctypes.ErrGRPCMemberNotLearner, invalid},
	// Without it no member would be left that is started.
	{fsm.ErrLastVoter, rpctypes.ErrGRPCMemberNotEnoughStarted, invalid},
	{fsm.ErrVersion, rpctypes.ErrGRPCInvalidDowngradeTargetVersion, invalid},
	{fsm.ErrDowngrade, rpctypes.ErrGRPCDowngradeInProcess, invalid},
	{fsm.ErrNoDowngrade, rpctypes.ErrGRPCNoInflightDowngrade, invalid},
	{fsm.ErrBadHolds, status.Error(codes.InvalidArgument, text(fsm.ErrBadHolds)), invalid},
	{
		fsm.ErrTooManyHolds,
		status.Error(codes.ResourceExhausted, text(fsm.ErrTooManyHolds)),
		pb.Reason_REASON_TOO_MANY_HOLDS,
	},
	{
		fsm.ErrOwnerHolds, status.Error(codes.ResourceExhausted, text(fsm.ErrOwnerHolds)),
		pb.Reason_REASON_TOO_MANY_HOLDS,
	},
	{fsm.ErrUnreadable, status.Error(codes.InvalidArgument, text(fsm.ErrUnreadable)), invalid},
	{fsm.ErrTxnTooLarge, rpctypes.ErrGRPCTooManyOps, invalid},
	{
		fsm.ErrTooManyAlarms, status.Error(codes.ResourceExhausted, text(fsm.ErrTooManyAlarms)), invalid,
	},
	{fsm.ErrStale, rpctypes.ErrGRPCLeaderChanged, unavailable},

	{replica.ErrNoLeader, rpctypes.ErrGRPCNoLeader, unavailable},
	{replica.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged, unknown},
	{replica.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge, invalid},
	{
		replica.ErrVersion, status.Error(
			codes.FailedPrecondition, "the cluster version does not have this command"), invalid,
	},
	{replica.ErrOverloaded, rpctypes.ErrGRPCRequestTooManyRequests, unavailable},
	{replica.ErrInternal, rpctypes.ErrGRPCPermissionDenied, invalid},
	{replica.ErrUnhealthy, rpctypes.ErrGRPCUnhealthy, unavailable},
	{replica.ErrTooManyLearners, rpctypes.ErrGRPCTooManyLearners, unavailable},
	{replica.ErrLearnerNotReady, rpctypes.ErrGRPCLearnerNotReady, unavailable},
	{replica.ErrBadTransferee, rpctypes.ErrGRPCBadLeaderTransferee, invalid},

	{ErrTooDeep, rpctypes.ErrGRPCTooManyOps, invalid},
	{ErrDuplicateKey, rpctypes.ErrGRPCDuplicateKey, invalid},
	{ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests, unavailable},
	{ErrStopped, rpctypes.ErrGRPCStopped, unknown},
	{ErrTimeout, rpctypes.ErrGRPCTimeout, unknown},

	{context.Canceled, rpctypes.ErrGRPCCanceled, unknown},
	{context.DeadlineExceeded, rpctypes.ErrGRPCDeadlineExceeded, unknown},
}

// Error returns the gRPC status that err is to a client of the etcd API: nil
// for nil, an error that is a status already as it is, and Unknown with its own
// text for one that is not in the table, as etcd does.
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
	// As with etcd's own "request timed out, possibly due to ..." the text goes on.
	if late := new(TimeoutError); errors.As(err, &late) {
		return status.Error(codes.Unavailable, rpctypes.ErrTimeout.Error()+late.why())
	}
	var ttl *lease.TTLError
	if errors.As(err, &ttl) && ttl.Got > ttl.Max {
		return rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	for i := range wire {
		if errors.Is(err, wire[i].from) {
			return wire[i].to
		}
	}
	return status.Error(refusal(err), text(err))
}

// refusal is the code of an error that carries data; its text is its own,
// since etcd has no such errors.
func refusal(err error) codes.Code {
	if r := dataReason(err); r != pb.Reason_REASON_UNSPECIFIED {
		return nativeCodes[r]
	}
	return codes.Unknown
}

// ProposalError is Error for a command that was proposed. A deadline that ends
// while the outcome is open is a timeout of the service, as with etcd: clients
// then know that the command may have taken effect. That no leader was found in
// time is one too, because to etcd's clients that is what a write without a
// quorum looks like.
func ProposalError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return rpctypes.ErrGRPCTimeout
	}
	return ReadError(err)
}

// ReadError is Error for a read of keys or members that waited for a confirm
// round. As with etcd, who waits for a leader in vain is told of a timeout; only
// renewals and queries of leases, and calls that said that they want a leader,
// are told that there is none.
func ReadError(err error) error {
	if errors.Is(err, replica.ErrNoLeader) {
		return rpctypes.ErrGRPCTimeout
	}
	return Error(err)
}
