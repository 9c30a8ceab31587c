// Package api holds what the wire APIs share: the one table from the
// service's errors to those that clients see.
package api

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// wire is the single table from the service's errors to what a client of the
// etcd API sees. The texts are etcd's, since client libraries compare them.
var wire = []struct{ from, to error }{
	{lease.ErrNotFound, rpctypes.ErrGRPCLeaseNotFound},
	{lease.ErrExists, rpctypes.ErrGRPCLeaseExist},
	// An expiring lease may come back, but whoever is told so must not count
	// on it: for a holder the safe answer is that it is gone.
	{lease.ErrExpiring, rpctypes.ErrGRPCLeaseNotFound},
	{lease.ErrBadID, status.Error(codes.InvalidArgument, "etcdserver: lease ID must be positive")},
	{lease.ErrNotPrimary, rpctypes.ErrGRPCLeaderChanged},
	{lease.ErrCorrupt, rpctypes.ErrGRPCCorrupt},

	{mvcc.ErrCompacted, rpctypes.ErrGRPCCompacted},
	{mvcc.ErrFutureRevision, rpctypes.ErrGRPCFutureRev},

	{fsm.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound},
	{fsm.ErrNoSpace, rpctypes.ErrGRPCNoSpace},
	{fsm.ErrMemberNotFound, rpctypes.ErrGRPCMemberNotFound},
	{fsm.ErrMemberExists, rpctypes.ErrGRPCMemberExist},
	{fsm.ErrPeerURLExists, rpctypes.ErrGRPCPeerURLExist},
	{fsm.ErrNotLearner, rpctypes.ErrGRPCMemberNotLearner},
	// Without it no member would be left that is started.
	{fsm.ErrLastVoter, rpctypes.ErrGRPCMemberNotEnoughStarted},
	{fsm.ErrStale, rpctypes.ErrGRPCLeaderChanged},
	{fsm.ErrEventsCompacted, status.Error(codes.OutOfRange, "leasehold: lease events compacted")},

	{replica.ErrNoLeader, rpctypes.ErrGRPCNoLeader},
	{replica.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged},
	{replica.ErrOverloaded, rpctypes.ErrGRPCRequestTooManyRequests},
	{replica.ErrInternal, rpctypes.ErrGRPCPermissionDenied},
	{replica.ErrUnhealthy, rpctypes.ErrGRPCUnhealthy},
	{replica.ErrTooManyLearners, rpctypes.ErrGRPCTooManyLearners},
	{replica.ErrLearnerNotReady, rpctypes.ErrGRPCLearnerNotReady},
	{replica.ErrBadTransferee, rpctypes.ErrGRPCBadLeaderTransferee},

	{ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests},
	{ErrStopped, rpctypes.ErrGRPCStopped},
	{ErrTimeout, rpctypes.ErrGRPCTimeout},

	{context.Canceled, rpctypes.ErrGRPCCanceled},
	{context.DeadlineExceeded, rpctypes.ErrGRPCDeadlineExceeded},
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
	var ttl *lease.TTLError
	if errors.As(err, &ttl) && ttl.Got > ttl.Max {
		return rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	for i := range wire {
		if errors.Is(err, wire[i].from) {
			return wire[i].to
		}
	}
	return status.Error(refusal(err), err.Error())
}

// refusal is the code of an error that carries data; its text is its own,
// since etcd has no such errors.
func refusal(err error) codes.Code {
	var (
		ttl  *lease.TTLError
		name *lease.NameError
		keys *lease.KeyLimitError
	)
	switch {
	case errors.As(err, &ttl):
		return codes.InvalidArgument
	case errors.As(err, &name):
		return codes.AlreadyExists
	case errors.As(err, &keys):
		return codes.ResourceExhausted
	default:
		return codes.Unknown
	}
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
