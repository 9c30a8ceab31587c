package client

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/fault"
)

// Error is a condition that a program can handle. Calls return errors that wrap an Error, so
// [errors.Is] can match it.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

// Is makes [ErrFutureRevision] match [ErrCompacted].
func (e Error) Is(target error) bool {
	return e == ErrFutureRevision && target == ErrCompacted //nolint:errorlint // the one value
}

// These errors come from the cluster.
const (
	// ErrInvalid means that the request is malformed or contradicts itself.
	ErrInvalid Error = "invalid request"
	// ErrLeaseNotFound means that the lease does not exist, or that the token or the secret does
	// not match it.
	ErrLeaseNotFound Error = "no such lease"
	// ErrNameTaken means that a live lease already has the name. See [TakenError].
	ErrNameTaken Error = "name is taken"
	// ErrIDTaken means that a live lease already has the ID. See [TakenError]. For a grant in a
	// transaction, the error does not identify that lease.
	ErrIDTaken Error = "lease ID is taken"
	// ErrKeyNotFound means that the key does not exist.
	ErrKeyNotFound Error = "no such key"
	// ErrTooManyKeys means that the lease already has the maximum number of keys.
	ErrTooManyKeys Error = "too many keys on the lease"
	// ErrTooManyHolds means that the owner's leases, or all leases together, have reached their
	// limit of held ranges. The message names the limit and suggests a remedy.
	ErrTooManyHolds Error = "too many held ranges"
	// ErrCompacted means that the cluster no longer has the requested revision.
	ErrCompacted Error = "revision was compacted"
	// ErrFutureRevision means that the store has not reached the requested revision. This happens
	// when the cluster has been restored to an earlier state and a program tries to continue from a
	// revision that it saw before the restore. The program must then read everything again, as
	// after [ErrCompacted]. That is why errors.Is matches ErrCompacted as well.
	ErrFutureRevision Error = "revision is in the future"
	// ErrNoSpace means that the store has reached its quota.
	ErrNoSpace Error = "no space left in the store"
	// ErrLimitReached means that the user has reached one of its limits. The message includes the
	// limit and the current use.
	ErrLimitReached Error = "limit reached"
	// ErrPermissionDenied means that the user lacks a permission. The message names the permission.
	ErrPermissionDenied Error = "permission denied"
	// ErrNotLoggedIn means that the cluster has users, and the client's password or token was
	// rejected or is missing. Calls return it immediately, but the client keeps trying to log in.
	// Once a login succeeds, calls succeed again.
	ErrNotLoggedIn Error = "not logged in"
	// ErrUnavailable means that no member could serve the request, and that nothing has changed.
	// Calls are retried, so they return this error only when their context ends. If the error also
	// matches [ErrUnknownOutcome], only the last attempt is known to have changed nothing; an
	// earlier one may have taken effect. So check for ErrUnknownOutcome first.
	ErrUnavailable Error = "unavailable"
	// ErrUnknownOutcome means that the request may have taken effect, or may still do so.
	ErrUnknownOutcome Error = "unknown outcome"
)

// These errors come from the client itself.
const (
	// ErrNotLeasehold means that the servers are not Leasehold members (they may be etcd, for
	// instance), or that a proxy in front of them does not forward leasehold.v1. Nothing has
	// changed.
	ErrNotLeasehold Error = "no endpoint serves leasehold.v1"
	// ErrOtherCluster means that an endpoint belongs to a different cluster than the client. See
	// [Config.ClusterID]. The client ignores that endpoint and tries the others. If all endpoints
	// belong to other clusters, calls fail immediately.
	ErrOtherCluster Error = "the endpoint belongs to another cluster"
	// ErrClosed means that the client, the watch or the lease has been closed.
	ErrClosed Error = "closed"
)

// These errors are the reasons why a [Hold] or a lease has ended. The Err method returns the
// reason, which is also the context's cause. After [Client.Close] the reason is [ErrClosed].
const (
	// ErrJeopardy means that no renewal has been acknowledged in time. The lease may still be
	// alive.
	ErrJeopardy Error = "client: the lease is in jeopardy"
	// ErrExpired means that no renewal was acknowledged in time and that the client has given up
	// the lease according to its own clock. The cluster has not reported what happened to the
	// lease.
	ErrExpired Error = "client: the lease was not renewed in time, by the client's " +
		"own clock; whether it still exists is unknown"
	// ErrLost means that the cluster has ended the lease (see [LostError]), or has deleted a key
	// attached to it, such as the key of a lock.
	ErrLost Error = "client: lost"
	// ErrReleased means that this program released or revoked the lease, or tried to.
	ErrReleased Error = "client: released"
	// ErrHandedOver means that this client handed the lease over, or tried to.
	ErrHandedOver Error = "client: the lease was handed over"
	// ErrReplaced means that the client has a newer [Lease] with the same ID.
	ErrReplaced Error = "client: the lease has a newer handle"
)

// reasons maps the error reasons of leasehold.v1 to this package's errors.
var reasons = map[pb.Reason]error{
	pb.Reason_REASON_INVALID:           ErrInvalid,
	pb.Reason_REASON_LEASE_NOT_FOUND:   ErrLeaseNotFound,
	pb.Reason_REASON_NAME_TAKEN:        ErrNameTaken,
	pb.Reason_REASON_ID_TAKEN:          ErrIDTaken,
	pb.Reason_REASON_KEY_NOT_FOUND:     ErrKeyNotFound,
	pb.Reason_REASON_TOO_MANY_KEYS:     ErrTooManyKeys,
	pb.Reason_REASON_TOO_MANY_HOLDS:    ErrTooManyHolds,
	pb.Reason_REASON_COMPACTED:         ErrCompacted,
	pb.Reason_REASON_FUTURE_REVISION:   ErrFutureRevision,
	pb.Reason_REASON_NO_SPACE:          ErrNoSpace,
	pb.Reason_REASON_UNAVAILABLE:       ErrUnavailable,
	pb.Reason_REASON_UNKNOWN_OUTCOME:   ErrUnknownOutcome,
	pb.Reason_REASON_SESSION_NOT_FOUND: errSessionDropped,
	pb.Reason_REASON_PERMISSION_DENIED: ErrPermissionDenied,
	pb.Reason_REASON_UNAUTHENTICATED:   ErrNotLoggedIn,
	pb.Reason_REASON_LIMIT_REACHED:     ErrLimitReached,
}

// TakenError means that another lease already has the requested name, ID or lock.
type TakenError struct {
	// Holder describes that lease, without its remaining time. For the holder of a lock, only the
	// ID is set.
	Holder leases.Info
	// Err is ErrNameTaken, ErrIDTaken or lock.ErrLocked.
	Err error
}

// Error implements error.
func (e *TakenError) Error() string {
	if e.Holder.Delayed {
		return fmt.Sprintf("%v: lease %016x has expired, but still holds it until its lock "+
			"delay of %v has passed", e.Err, e.Holder.ID, e.Holder.LockDelay)
	}
	if e.Holder.Token == 0 {
		return fmt.Sprintf("%v: lease %016x is first in the wait queue", e.Err, e.Holder.ID)
	}
	if e.Holder.Owner == "" {
		return fmt.Sprintf("%v: held by lease %016x, token %d", e.Err, e.Holder.ID, e.Holder.Token)
	}
	return fmt.Sprintf("%v: held by lease %016x of %q, token %d",
		e.Err, e.Holder.ID, e.Holder.Owner, e.Holder.Token)
}

// Unwrap returns Err.
func (e *TakenError) Unwrap() error { return e.Err }

// errSessionDropped means that the request changed nothing because the cluster has dropped the
// client's session.
var errSessionDropped = errors.New("the session was dropped")

// plainWords lists messages from members that only repeat the reason.
var plainWords = []string{
	"lease not found", "lease already exists", "key not found", "revision has been compacted",
	"revision is in the future", "permission denied",
}

// errorOf converts an error from a member. If the client does not know the reason, because the
// server is newer, the outcome is unknown.
func errorOf(e *pb.Error) error {
	err := reasons[e.Reason]
	switch {
	case err == nil:
		err = ErrUnknownOutcome
	case e.Holder != nil && (err == ErrNameTaken || err == ErrIDTaken): //nolint:errorlint // ours
		return &TakenError{Holder: infoOf(e.Holder), Err: err}
	}
	if e.Message == "" || slices.Contains(plainWords, e.Message) {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.TrimPrefix(e.Message, "permission denied: "))
}

// reasonError returns the error for one lease in a batch.
func reasonError(r pb.Reason) error {
	if err := reasons[r]; err != nil {
		return err
	}
	return ErrUnknownOutcome
}

// linkError means that a request has not been answered.
type linkError struct {
	sent  bool // the request may have taken effect
	cause error
}

func (e *linkError) Error() string {
	if errors.Is(e.cause, errOver) {
		return e.cause.Error()
	}
	return fmt.Sprintf("no response: %v", e.cause)
}

func (e *linkError) Unwrap() error { return e.cause }

// plainError is a connection error that keeps only the useful part of gRPC's text.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }

func (e *plainError) Unwrap() error { return e.err }

// plain removes gRPC's code and wrapping from the text of an error.
func plain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if _, after, found := strings.Cut(text, "rpc error: code = "); found {
		if _, desc, found := strings.Cut(after, " desc = "); found {
			text = desc
		}
	}
	if desc, found := strings.CutPrefix(text, "connection error: desc = "); found {
		text = desc
		if unquoted, err := strconv.Unquote(desc); err == nil {
			text = unquoted
		}
	}
	text = strings.TrimPrefix(text, "transport: ")
	text = strings.TrimPrefix(text, "Error while dialing: ")
	return &plainError{text: text + fault.TLSHint(text), err: err}
}
