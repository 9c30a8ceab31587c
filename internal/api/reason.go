package api

import (
	"cmp"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// Short names for the reasons, used in the tables.
const (
	invalid     = pb.Reason_REASON_INVALID
	notFound    = pb.Reason_REASON_LEASE_NOT_FOUND
	idTaken     = pb.Reason_REASON_ID_TAKEN
	noKey       = pb.Reason_REASON_KEY_NOT_FOUND
	compacted   = pb.Reason_REASON_COMPACTED
	future      = pb.Reason_REASON_FUTURE_REVISION
	noSpace     = pb.Reason_REASON_NO_SPACE
	unavailable = pb.Reason_REASON_UNAVAILABLE
	unknown     = pb.Reason_REASON_UNKNOWN_OUTCOME
	denied      = pb.Reason_REASON_PERMISSION_DENIED
	loggedOut   = pb.Reason_REASON_UNAUTHENTICATED
	limited     = pb.Reason_REASON_LIMIT_REACHED
)

// nativeCodes maps each reason to its gRPC code in leasehold.v1.
var nativeCodes = map[pb.Reason]codes.Code{
	invalid:                            codes.InvalidArgument,
	notFound:                           codes.NotFound,
	pb.Reason_REASON_NAME_TAKEN:        codes.AlreadyExists,
	idTaken:                            codes.AlreadyExists,
	noKey:                              codes.NotFound,
	pb.Reason_REASON_TOO_MANY_KEYS:     codes.ResourceExhausted,
	pb.Reason_REASON_TOO_MANY_HOLDS:    codes.ResourceExhausted,
	compacted:                          codes.OutOfRange,
	future:                             codes.OutOfRange,
	noSpace:                            codes.ResourceExhausted,
	unavailable:                        codes.Unavailable,
	pb.Reason_REASON_SESSION_NOT_FOUND: codes.FailedPrecondition,
	// Do not use Unavailable: proxies and libraries retry it automatically.
	unknown:   codes.Unknown,
	denied:    codes.PermissionDenied,
	loggedOut: codes.Unauthenticated,
	limited:   codes.ResourceExhausted,
}

// A HolderError means that another lease holds what was requested.
type HolderError struct {
	// Err is lease.ErrExists or a *lease.NameError.
	Err error
	// Holder is the lease that holds what was requested.
	Holder lease.Info
}

// Error returns the text of e.Err.
func (e *HolderError) Error() string { return e.Err.Error() }

// Unwrap returns e.Err.
func (e *HolderError) Unwrap() error { return e.Err }

// Reason returns the leasehold.v1 reason for a command's error. For a nil error, the reason is
// unspecified. An error that is not in the table counts as an unknown outcome.
func Reason(err error) pb.Reason {
	if err == nil {
		return pb.Reason_REASON_UNSPECIFIED
	}
	for i := range wire {
		if errors.Is(err, wire[i].from) || errors.Is(err, wire[i].to) {
			return wire[i].reason
		}
	}
	if r := dataOf(err).reason; r != pb.Reason_REASON_UNSPECIFIED {
		return r
	}
	switch s, _ := status.FromError(err); s.Code() {
	case codes.InvalidArgument:
		return invalid
	case codes.Unavailable, codes.FailedPrecondition, codes.ResourceExhausted:
		return unavailable
	default:
		return unknown
	}
}

// ReadReason is Reason for requests that change nothing. Such requests can be retried after any
// failure.
func ReadReason(err error) pb.Reason {
	if r := Reason(err); r != unknown {
		return r
	}
	return unavailable
}

// ErrorMessage returns the leasehold.v1 message for an error with the given reason. It includes the
// holder if the error has one.
func ErrorMessage(err error, reason pb.Reason) *pb.Error {
	d := dataOf(err)
	detail := &pb.Error{
		Reason: reason, Message: text(err), Metadata: d.facts,
		RetryAfterMs: int64(cmp.Or(d.retry, usualRetry(err))),
	}
	if d.holder != nil {
		detail.Holder = LeaseMessage(d.holder)
	}
	return detail
}

// NativeError returns the gRPC status of an error for a leasehold.v1 client. Its details contain
// the ErrorMessage and the google.rpc messages.
func NativeError(err error, reason pb.Reason) error {
	return MessageError(ErrorMessage(err, reason))
}

// MessageError returns the gRPC status for an ErrorMessage.
func MessageError(e *pb.Error) error {
	s := status.New(nativeCodes[e.Reason], e.Message)
	return withDetails(s, append([]protoadapt.MessageV1{e}, googleDetails(e)...)...)
}

// Detail returns the leasehold.v1 message from the details of a status, or nil.
func Detail(err error) *pb.Error {
	for _, d := range status.Convert(err).Details() {
		if e, ok := d.(*pb.Error); ok {
			return e
		}
	}
	return nil
}

// text returns the human-readable text of an error. It removes the prefix with the package name,
// except for "lease", because readers understand that word.
func text(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	text := err.Error()
	for _, name := range [...]string{"fsm: ", "mvcc: ", "access: "} {
		text = strings.TrimPrefix(text, name)
	}
	if rest, ok := strings.CutPrefix(text, "lease: "); ok {
		return "lease " + strings.TrimPrefix(rest, "lease ")
	}
	return text
}
