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

// Error is a condition that a program may want to handle: calls return errors that wrap one, so
// [errors.Is] finds it.
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
	// ErrLeaseNotFound means that there is no such lease, or that the token or the secret is not
	// the lease's.
	ErrLeaseNotFound Error = "no such lease"
	// ErrNameTaken means that a live lease has the name: see [TakenError].
	ErrNameTaken Error = "name is taken"
	// ErrIDTaken means that a live lease has the ID: see [TakenError]. For a grant in a
	// transaction, it does not identify the lease.
	ErrIDTaken Error = "lease ID is taken"
	// ErrKeyNotFound means that there is no such key.
	ErrKeyNotFound Error = "no such key"
	// ErrTooManyKeys means that the lease already has as many keys as it may have.
	ErrTooManyKeys Error = "too many keys on the lease"
	// ErrTooManyHolds means that the owner's leases, or all leases together, have reached their
	// limit of held ranges; the message names the limit and a remedy.
	ErrTooManyHolds Error = "too many held ranges"
	// ErrCompacted means that the cluster no longer has the requested revision.
	ErrCompacted Error = "revision was compacted"
	// ErrFutureRevision means that the store has not reached the requested revision. A program gets
	// this error if it continues from a known revision after a restore has returned the cluster to
	// an earlier state. It must then read everything again, as after [ErrCompacted]; so errors.Is
	// matches that, too.
	ErrFutureRevision Error = "revision is in the future"
	// ErrNoSpace means that the quota of the store is used up.
	ErrNoSpace Error = "no space left in the store"
	// ErrLimitReached means that the user has reached one of its limits; the message includes the
	// limit and the current use.
	ErrLimitReached Error = "limit reached"
	// ErrPermissionDenied means that the user lacks a permission; the message names it.
	ErrPermissionDenied Error = "permission denied"
	// ErrNotLoggedIn means that the cluster has users, and does not accept the client's password
	// or token, or the client has none. Calls return it at once, but the client keeps trying to
	// log in: calls succeed again when the login does.
	ErrNotLoggedIn Error = "not logged in"
	// ErrUnavailable means that no member could serve the request, and nothing changed. Calls keep
	// trying, so they return it only when their context ends. If the error is also
	// [ErrUnknownOutcome], this is true only of the last attempt: an earlier one may have taken
	// effect. So check for ErrUnknownOutcome first.
	ErrUnavailable Error = "unavailable"
	// ErrUnknownOutcome means that the request may have taken effect, or may still do so.
	ErrUnknownOutcome Error = "unknown outcome"
)

// These errors are the client's own.
const (
	// ErrNotLeasehold means that the servers are not Leasehold members (etcd, for instance), or
	// that a proxy in front of them does not forward leasehold.v1. Nothing changed.
	ErrNotLeasehold Error = "no endpoint serves leasehold.v1"
	// ErrOtherCluster means that an endpoint belongs to a different cluster than the client: see
	// [Config.ClusterID]. The client ignores that endpoint and tries the others. If all endpoints
	// belong to other clusters, calls fail at once.
	ErrOtherCluster Error = "the endpoint belongs to another cluster"
	// ErrClosed means that the client, the watch or the lease was closed.
	ErrClosed Error = "closed"
)

// These errors are the reasons why a [Hold] or a lease has ended: they are the causes of its
// context, and the results of Err. After [Client.Close] the cause is [ErrClosed].
const (
	// ErrJeopardy means that no renewal was acknowledged in time. The lease may still be alive.
	ErrJeopardy Error = "client: the lease is in jeopardy"
	// ErrExpired means that no renewal was acknowledged in time, and by its own clock, the client
	// has given up the lease. The cluster has not reported what happened to the lease.
	ErrExpired Error = "client: the lease was not renewed in time, by the client's " +
		"own clock; whether it still exists is unknown"
	// ErrLost means that the cluster has ended the lease (see [LostError]), or has deleted a key
	// on it, such as that of a lock.
	ErrLost Error = "client: lost"
	// ErrReleased means that this program released or revoked it, or tried to.
	ErrReleased Error = "client: released"
	// ErrHandedOver means that this client handed the lease over, or tried to.
	ErrHandedOver Error = "client: the lease was handed over"
	// ErrReplaced means that the client has a newer [Lease] of the same ID.
	ErrReplaced Error = "client: the lease has a newer handle"
)

// reasons maps the errors of leasehold.v1.
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

// TakenError means that another lease has the name, the ID or the lock that the caller requested.
type TakenError struct {
	// Holder is the lease, without its remaining time. Of the holder of a lock only the ID is set.
	Holder leases.Info
	// Err is ErrNameTaken, ErrIDTaken or lock.ErrLocked.
	Err error
}

// Error implements error.
func (e *TakenError) Error() string {
	if e.Holder.Delayed {
		return fmt.Sprintf("%v: lease %016x expired, but keeps it until its lock delay of "+
			"%v has passed", e.Err, e.Holder.ID, e.Holder.LockDelay)
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

// errSessionDropped means that the cluster has dropped the client's session, so nothing changed.
var errSessionDropped = errors.New("the session was dropped")

// plainWords are messages from members that only repeat the reason.
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

// reasonError returns the error of one lease in a batch.
func reasonError(r pb.Reason) error {
	if err := reasons[r]; err != nil {
		return err
	}
	return ErrUnknownOutcome
}

// linkError means that a request got no answer.
type linkError struct {
	sent  bool // so it may have taken effect
	cause error
}

func (e *linkError) Error() string {
	if errors.Is(e.cause, errOver) {
		return e.cause.Error()
	}
	return fmt.Sprintf("no response: %v", e.cause)
}

func (e *linkError) Unwrap() error { return e.cause }

// plainError is a connection error with the useful part of gRPC's text.
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
