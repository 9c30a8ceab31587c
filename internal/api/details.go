package api

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/login"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// NotReady returns the error for calls to a member that cannot serve them yet.
func NotReady(why cause.Code, text string) error {
	return withDetails(status.New(codes.Unavailable, text), googleDetails(&pb.Error{
		Reason: unavailable, Metadata: map[string]string{cause.Key: string(why)},
	})...)
}

// retrySoon is the suggested retry delay if there is no leader or a queue is full. Electing a
// leader or draining the queue usually takes less time.
const retrySoon lease.TTL = 100

// data is what an error carries in addition to its text.
type data struct {
	reason pb.Reason         // unspecified if the wire table contains it
	facts  map[string]string // metadata for programs; nil if the reason suffices
	holder *lease.Info       // the lease that holds the requested name, ID or key; may be nil
	retry  lease.TTL         // delay before a retry, 0 if unknown
}

// dataOf returns the data of an error. The metadata omits names, because they can be long and the
// caller already has them.
func dataOf(err error) (d data) {
	var (
		ttl    *lease.TTLError
		keys   *lease.KeyLimitError
		long   *fsm.CacheTTLError
		short  *login.TooShortError
		late   *TimeoutError
		holder *HolderError
		name   *lease.NameError
		limit  *access.LimitError
		often  *RateError
	)
	switch {
	case errors.As(err, &limit):
		d.reason, d.facts = limited, limitFacts(limit)
	case errors.As(err, &ttl):
		d.reason, d.facts = invalid, map[string]string{
			"ttl_ms": number(ttl.Got), "min_ttl_ms": number(ttl.Min), "max_ttl_ms": number(ttl.Max),
		}
	case errors.As(err, &long):
		d.reason = invalid
		d.facts = map[string]string{"ttl_ms": number(long.Got), "max_ttl_ms": number(long.Max)}
	case errors.As(err, &short):
		d.reason = invalid
	case errors.As(err, &keys):
		d.reason = pb.Reason_REASON_TOO_MANY_KEYS
		d.facts = map[string]string{"lease": number(keys.ID), "limit": number(keys.Limit)}
	case errors.Is(err, replica.ErrNoLeader):
		d.facts = map[string]string{cause.Key: string(cause.NoLeader)}
	case errors.As(err, &late):
		d.facts = late.facts()
	case errors.As(err, &name):
		d.reason, d.holder = pb.Reason_REASON_NAME_TAKEN, &name.Holder
	}
	if errors.As(err, &holder) {
		d.holder = &holder.Holder
	}
	if d.holder != nil {
		d.facts = heldBy(d.holder)
		if d.holder.Delayed { // the name or key is free after that time
			d.retry = d.holder.LockDelay
		}
	}
	if errors.As(err, &often) {
		d.retry = often.Retry
	}
	return d
}

// limitFacts returns the limit that was reached and, if it may be disclosed, the current use.
func limitFacts(e *access.LimitError) map[string]string {
	m := map[string]string{"resource": e.What.String(), "limit": number(e.Limit)}
	if e.Used >= 0 && e.What != access.Rate {
		m["used"] = number(e.Used)
	}
	return m
}

// heldBy returns the metadata about the lease that holds what was requested.
func heldBy(i *lease.Info) map[string]string {
	m := map[string]string{
		"lease": number(i.ID), "token": strconv.FormatUint(uint64(i.Token), 10),
	}
	if i.Delayed {
		m["lock_delay_ms"] = number(i.LockDelay)
	}
	return m
}

func number[T ~int | ~int64](n T) string { return strconv.FormatInt(int64(n), 10) }

// usualRetry returns the retry delay that the wire table gives for an error, or 0 if it gives none.
func usualRetry(err error) lease.TTL {
	for i := range wire {
		if w := &wire[i]; w.retry > 0 && (errors.Is(err, w.from) || errors.Is(err, w.to)) {
			return w.retry
		}
	}
	return 0
}

// googleDetails translates an Error message into google.rpc error details.
func googleDetails(e *pb.Error) []protoadapt.MessageV1 {
	out := []protoadapt.MessageV1{&errdetails.ErrorInfo{
		Reason: strings.TrimPrefix(e.Reason.String(), "REASON_"), Domain: cause.Domain,
		Metadata: e.Metadata,
	}}
	if e.RetryAfterMs > 0 {
		wait := time.Duration(e.RetryAfterMs) * time.Millisecond
		out = append(out, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	return out
}

func withDetails(s *status.Status, list ...protoadapt.MessageV1) error {
	if out, err := s.WithDetails(list...); err == nil {
		return out.Err()
	}
	return s.Err() // unreachable: these messages can always be marshaled
}

// withFacts adds the metadata of err to sent, an etcd API error. Most errors have no metadata and
// are returned unchanged. Inform later adds their reason.
func withFacts(sent, err error) error {
	if dataOf(err).facts == nil {
		return sent
	}
	return withDetails(status.Convert(sent), googleDetails(ErrorMessage(err, Reason(err)))...)
}

// informed maps the text of each etcd API error to the same error with the details added by Inform.
var informed = func() map[string]error {
	all := make(map[string]error, len(wire))
	for i := range wire {
		w := &wire[i]
		s := status.Convert(w.to)
		if _, ok := all[s.Message()]; !ok {
			e := &pb.Error{Reason: w.reason, RetryAfterMs: int64(w.retry), Metadata: dataOf(w.from).facts}
			all[s.Message()] = withDetails(s, googleDetails(e)...)
		}
	}
	return all
}()

// Inform adds google.rpc.ErrorInfo and RetryInfo to an error that has no details yet. It does not
// change the code or the text, because etcd clients rely on them.
func Inform(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok || len(s.Proto().GetDetails()) > 0 {
		return err
	}
	if known := informed[s.Message()]; known != nil && status.Code(known) == s.Code() {
		return known
	}
	e := &pb.Error{}
	switch s.Code() {
	case codes.InvalidArgument:
		e.Reason = invalid
	case codes.Unavailable:
		e.Reason = unavailable
	default:
		return err
	}
	return withDetails(s, googleDetails(e)...)
}
