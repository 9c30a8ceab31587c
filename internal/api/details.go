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
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// NotReady is why a member cannot answer calls yet.
func NotReady(why cause.Code, text string) error {
	return withDetails(status.New(codes.Unavailable, text), googleDetails(&pb.Error{
		Reason: unavailable, Metadata: map[string]string{cause.Key: string(why)},
	})...)
}

// retrySoon is when it is worth asking again after nobody led, or the queue was full: most leaders
// are replaced in less, and a full queue is done in less.
const retrySoon lease.TTL = 100

// facts is what an error says, for programs; nil if that is no more than its reason. Names
// are not among them: they can be long, and the caller has them.
func facts(err error) map[string]string {
	var (
		ttl    *lease.TTLError
		keys   *lease.KeyLimitError
		long   *fsm.CacheTTLError
		late   *TimeoutError
		holder *HolderError
		name   *lease.NameError
		limit  *access.LimitError
	)
	switch {
	case errors.As(err, &limit):
		return limitFacts(limit)
	case errors.As(err, &ttl):
		return map[string]string{
			"ttl_ms": number(ttl.Got), "min_ttl_ms": number(ttl.Min), "max_ttl_ms": number(ttl.Max),
		}
	case errors.As(err, &long):
		return map[string]string{"ttl_ms": number(long.Got), "max_ttl_ms": number(long.Max)}
	case errors.As(err, &keys):
		return map[string]string{"lease": number(keys.ID), "limit": number(keys.Limit)}
	case errors.Is(err, replica.ErrNoLeader):
		return map[string]string{cause.Key: string(cause.NoLeader)}
	case errors.As(err, &late):
		return late.facts()
	case errors.As(err, &holder):
		return heldBy(&holder.Holder)
	case errors.As(err, &name):
		return heldBy(&name.Holder)
	default:
		return nil
	}
}

// limitFacts says which limit is reached, and how much is used unless that is another's business.
func limitFacts(e *access.LimitError) map[string]string {
	m := map[string]string{"resource": e.What.String(), "most": number(e.Limit)}
	if e.Used >= 0 && e.What != access.Rate {
		m["used"] = number(e.Used)
	}
	return m
}

// heldBy tells of the lease that has what was asked for.
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

// retryAfter says after how long it is worth asking again; 0 if nobody can say. What a delayed
// lease has is free after its lock delay at the latest.
func retryAfter(err error) lease.TTL {
	var (
		holder *HolderError
		name   *lease.NameError
	)
	if often := new(RateError); errors.As(err, &often) {
		return often.Retry
	}
	switch {
	case errors.As(err, &holder) && holder.Holder.Delayed:
		return holder.Holder.LockDelay
	case errors.As(err, &name) && name.Holder.Delayed:
		return name.Holder.LockDelay
	}
	for i := range wire {
		if w := &wire[i]; w.retry > 0 && (errors.Is(err, w.from) || errors.Is(err, w.to)) {
			return w.retry
		}
	}
	return 0
}

// googleDetails says what a message of ours does as programs for any service understand it.
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
	return s.Err() // only a message that does not marshal gets here, and these all do
}

// withFacts adds to an error of the etcd API what err says for programs. Most errors say no
// more than their reason: they stay what they are, and Inform adds that.
func withFacts(sent, err error) error {
	if facts(err) == nil {
		return sent
	}
	return withDetails(status.Convert(sent), googleDetails(ErrorMessage(err, Reason(err)))...)
}

// informed are the errors of the etcd API with what Inform adds, by their texts.
var informed = func() map[string]error {
	all := make(map[string]error, len(wire))
	for i := range wire {
		w := &wire[i]
		s := status.Convert(w.to)
		if _, ok := all[s.Message()]; !ok {
			e := &pb.Error{Reason: w.reason, RetryAfterMs: int64(w.retry), Metadata: facts(w.from)}
			all[s.Message()] = withDetails(s, googleDetails(e)...)
		}
	}
	return all
}()

// Inform returns an error as it leaves, with google.rpc.ErrorInfo and RetryInfo if it has none
// yet. Its code and its text, by which etcd's clients know it, stay.
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
