package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fault"
)

// kind determines how an unanswered request is retried.
type kind uint8

const (
	numbered kind = iota // changes something; its number makes it take effect once
	repeated             // changes something, but may be repeated
	read                 // changes nothing
	renewal              // retried by package holder
	watching             // restarted by its Watcher
)

// spec holds the properties of a request that the client needs in addition to its message.
type spec struct {
	op   string // for errors
	on   string // the name or key, quoted after op in errors unless empty
	kind kind
	// unsure is true if an earlier attempt may have taken effect, and tried if there was one.
	unsure, tried bool
	// number is the number of a numbered request, once assigned.
	number number
	// begins is the ticket that the request starts to wait for, and ends the one that it stops
	// waiting for; either may be nil.
	begins, ends *Ticket
	// first is the call of the first attempt, usually the only one, with the request itself. Later
	// attempts use copies: an old link may still be sending the first one.
	first call
}

// ask is a request and its spec in one allocation, because requests are frequent. M is its message,
// and B the wrapper of the message.
type ask[B, M any] struct {
	spec
	request pb.Request
	body    B
	message M
}

// retry repeats attempt until it succeeds, or fails permanently.
func (c *Client) retry(
	ctx context.Context, s *spec, attempt func(*link) error,
) (err error) {
	defer func() { c.calls.of(err).Add(1) }()
	var last error // the last error that a member returned
	for failures := 0; ; failures++ {
		l, err := c.mux.get(ctx)
		if err != nil {
			return s.fail(err, nil)
		}
		err = attempt(l)
		if err == nil {
			return nil
		}
		if !s.retryable(err) {
			if !errors.Is(err, errOver) {
				last = nil // this error is the answer
			}
			return s.fail(err, last)
		}
		if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknownOutcome) {
			last = err
		}
		if ctx.Err() != nil {
			return s.fail(fault.Cause(ctx), err)
		}
		if errors.Is(err, errMoved) {
			continue // another member is available at once
		}
		if cause := c.mux.pause(ctx, backOff(failures)); cause != nil {
			return s.fail(cause, err)
		}
	}
}

// retryable reports whether to retry after an error, and records the consequences of the error.
func (s *spec) retryable(err error) bool {
	var broken *linkError
	sent := errors.As(err, &broken) && broken.sent
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, errOver):
		s.unsure = s.unsure || sent && s.kind != read
		return false
	case s.number.session != nil && errors.Is(err, errSessionDropped):
		s.number.session.forget()
		s.number = number{} // a new number cannot repeat anything, unless the old one was sent
		return !s.unsure
	case errors.Is(err, ErrUnavailable), broken != nil && !sent:
		return true
	case broken == nil && errors.Is(err, ErrNotLoggedIn):
		// Users or roles changed before the request was applied, so it had no effect. If the login
		// is no longer valid, the stream ends, and the request is answered on the next one.
		return true
	case errors.Is(err, ErrUnknownOutcome), sent:
		s.unsure = s.unsure || s.kind != read
		return true
	default:
		if s.kind == numbered && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNoSpace) &&
			!errors.Is(err, ErrLimitReached) && !errors.Is(err, ErrPermissionDenied) {
			s.unsure = false // the four may apply only to the last attempt
		}
		return false
	}
}

// fail builds the error of a call from the last error and, if there is one, the error before it.
func (s *spec) fail(err, before error) error {
	if before != nil && !errors.Is(before, err) {
		err = fmt.Errorf("%w (%w)", err, before)
	}
	if s.unsure && !errors.Is(err, ErrUnknownOutcome) {
		err = fault.Because(ErrUnknownOutcome, err)
	}
	return fault.In("client: "+s.op, s.on, err)
}

// errOver marks the error of an attempt whose context ended.
var errOver = errors.New("given up")

// overBy returns an errOver whose text is the cause of the context's end.
func overBy(ctx context.Context) error { return &over{fault.Cause(ctx)} }

type over struct{ cause error }

func (o *over) Error() string { return o.cause.Error() }

func (o *over) Unwrap() []error { return []error{errOver, o.cause} }

// do sends a request over the stream and retries until it has an answer.
func (c *Client) do(
	ctx context.Context, s *spec, r *pb.Request,
) (resp *pb.Response, err error) {
	err = c.retry(ctx, s, func(l *link) error {
		resp, err = c.attempt(ctx, l, s, r)
		return err
	})
	s.number.settle()
	return resp, err
}

// timed is do for a request that starts a TTL; sent is the moment before the attempt that was
// answered.
func (c *Client) timed(
	ctx context.Context, s *spec, r *pb.Request,
) (resp *pb.Response, sent moment, err error) {
	err = c.retry(ctx, s, func(l *link) error {
		sent = c.clock.moment()
		resp, err = c.attempt(ctx, l, s, r)
		return err
	})
	s.number.settle()
	return resp, sent, err
}

// attempt sends a request over a link once.
func (c *Client) attempt(
	ctx context.Context, l *link, s *spec, r *pb.Request,
) (*pb.Response, error) {
	if !s.tried {
		r.Traceparent = c.traceParent(ctx)
		n, err := c.check(r)
		if err != nil {
			return nil, err
		}
		s.first.size = int32(min(n, maxMessage)) // a message is no larger
	}
	if s.kind == numbered && s.number.session == nil {
		n, err := c.number(ctx, l)
		if err != nil {
			return nil, err
		}
		s.number = n
	}
	q := s.call(r)
	if s.begins != nil {
		s.begins.adopt(l, q)
	}
	if s.ends != nil {
		q.ends = s.ends.callOn(l)
	}
	c.caches.writing(r)
	q.deadline, _ = ctx.Deadline()
	if ctx.Err() != nil {
		return nil, &linkError{cause: overBy(ctx)}
	}
	return c.await(ctx, l, q)
}

// check returns an upper bound on the size of a request, and an error if the request would end the
// stream for all callers.
func (c *Client) check(r *pb.Request) (n int, err error) {
	n, ok := atMost(r)
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: it contains text that is not UTF-8", ErrInvalid)
	case n > c.most && proto.Size(r) > c.most:
		return 0, fmt.Errorf("%w: it has %d bytes; the limit is %d",
			ErrInvalid, proto.Size(r), c.most)
	}
	return n, nil
}

// maxTraceParent is much more than the header needs today.
const maxTraceParent = 256

// traceParent returns the traceparent header of a call, or "".
func (c *Client) traceParent(ctx context.Context) string {
	parent := c.mux.cfg.TraceParent
	if parent == nil {
		return ""
	}
	text := parent(ctx)
	if len(text) > maxTraceParent || !utf8.ValidString(text) {
		return "" // a bad trace header must not fail a call
	}
	return text
}

// call returns the call of the next attempt.
func (s *spec) call(r *pb.Request) *call {
	q := &s.first
	if s.tried {
		q, r = &call{}, &pb.Request{Body: r.Body, Traceparent: r.Traceparent}
	}
	s.tried = true
	r.Number = s.number.n
	q.request, q.size, q.kind, q.session = r, s.first.size, s.kind, s.number.session
	return q
}

// await submits a call and waits for its only or first answer.
func (c *Client) await(ctx context.Context, l *link, q *call) (*pb.Response, error) {
	q.answered = c.tokens.get()
	if err := l.submit(q); err != nil {
		return nil, err
	}
	select {
	case <-q.answered:
		c.tokens.put(q.answered) // a call sends one token, so the channel is empty again
		r, err := q.response, q.err
		q.response = nil // the call may remain open
		if e := r.GetError(); e != nil {
			return nil, errorOf(e)
		}
		return r, err
	case <-ctx.Done():
		sent := l.forget(q)
		return nil, &linkError{sent, overBy(ctx)}
	}
}

// tokens are unused, empty channels of capacity 1. Each client has its own, so that in a test they
// belong to its virtual time.
type tokens struct{ pool sync.Pool }

func (t *tokens) get() chan struct{} {
	if c, ok := t.pool.Get().(chan struct{}); ok {
		return c
	}
	return make(chan struct{}, 1)
}

func (t *tokens) put(c chan struct{}) { t.pool.Put(c) }
