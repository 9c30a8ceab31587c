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
	numbered kind = iota // changes something; its number makes it take effect only once
	repeated             // changes something, but is safe to repeat
	read                 // changes nothing
	renewal              // retried by package holder
	watching             // restarted by the Watcher
)

// spec holds what the client needs to know about a request in addition to its message.
type spec struct {
	op   string // used in errors
	on   string // the name or key; if not empty, errors quote it after op
	kind kind
	// tried is true if there has been an attempt. unsure is true if an attempt may have taken
	// effect.
	unsure, tried bool
	// number is the number of a numbered request, once assigned.
	number number
	// begins is the ticket that the request starts waiting for. ends is the ticket that it stops
	// waiting for. Either can be nil.
	begins, ends *Ticket
	// first is the call for the first attempt, which is usually the only one. It uses the request
	// itself. Later attempts use copies, because an old link may still be sending the original.
	first call
}

// ask holds a request and its spec in a single allocation, because requests are frequent. M is the
// type of the message, and B is the type that wraps it.
type ask[B, M any] struct {
	spec
	request pb.Request
	body    B
	message M
}

// retry calls attempt until it succeeds or fails permanently.
func (c *Client) retry(
	ctx context.Context, s *spec, attempt func(*link) error,
) (err error) {
	defer func() { c.calls.of(err).Add(1) }()
	var last error // the last error returned by a member
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
				last = nil // err is the answer; earlier errors no longer matter
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
			continue // another member is available immediately
		}
		if cause := c.mux.pause(ctx, backOff(failures)); cause != nil {
			return s.fail(cause, err)
		}
	}
}

// retryable reports whether to retry after an error, and records what the error implies.
func (s *spec) retryable(err error) bool {
	var broken *linkError
	sent := errors.As(err, &broken) && broken.sent
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, errOver):
		s.unsure = s.unsure || sent && s.kind != read
		return false
	case s.number.session != nil && errors.Is(err, errSessionDropped):
		s.number.session.forget()
		s.number = number{} // a write that was not sent can safely get a new number
		return !s.unsure
	case errors.Is(err, ErrUnavailable), broken != nil && !sent:
		return true
	case broken == nil && errors.Is(err, ErrNotLoggedIn):
		// Users or roles changed before the request was applied, so it had no effect. If the login
		// has become invalid, the stream ends, and the request is answered on the next stream.
		return true
	case errors.Is(err, ErrUnknownOutcome), sent:
		s.unsure = s.unsure || s.kind != read
		return true
	default:
		if s.kind == numbered && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNoSpace) &&
			!errors.Is(err, ErrLimitReached) && !errors.Is(err, ErrPermissionDenied) {
			s.unsure = false // these four errors may say nothing about earlier attempts
		}
		return false
	}
}

// fail builds the error that a call returns, from the last error and the error before it, if any.
func (s *spec) fail(err, before error) error {
	if before != nil && !errors.Is(before, err) {
		err = fmt.Errorf("%w (%w)", err, before)
	}
	if s.unsure && !errors.Is(err, ErrUnknownOutcome) {
		err = fault.Because(ErrUnknownOutcome, err)
	}
	return fault.In("client: "+s.op, s.on, err)
}

// errOver marks the error from an attempt whose context ended.
var errOver = errors.New("given up")

// overBy returns an errOver whose text says why the context ended.
func overBy(ctx context.Context) error { return &over{fault.Cause(ctx)} }

type over struct{ cause error }

func (o *over) Error() string { return o.cause.Error() }

func (o *over) Unwrap() []error { return []error{errOver, o.cause} }

// do sends a request over the stream, and retries until it gets an answer.
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

// timed is like do, for a request that starts a TTL. sent is a time just before the attempt that
// was answered.
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

// attempt makes one attempt to send a request over a link.
func (c *Client) attempt(
	ctx context.Context, l *link, s *spec, r *pb.Request,
) (*pb.Response, error) {
	if !s.tried {
		r.Traceparent = c.traceParent(ctx)
		n, err := c.check(r)
		if err != nil {
			return nil, err
		}
		s.first.size = int32(min(n, maxMessage)) // messages are never larger
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

// check returns an upper bound on the size of a request. It returns an error for a request that
// would break the stream for all callers.
func (c *Client) check(r *pb.Request) (n int, err error) {
	n, ok := atMost(r)
	switch {
	case !ok:
		return 0, fmt.Errorf("%w: it contains invalid UTF-8", ErrInvalid)
	case n > c.most && proto.Size(r) > c.most:
		return 0, fmt.Errorf("%w: it is %d bytes long; the limit is %d",
			ErrInvalid, proto.Size(r), c.most)
	}
	return n, nil
}

// maxTraceParent is far larger than the header needs to be today.
const maxTraceParent = 256

// traceParent returns the traceparent header for a call, or "".
func (c *Client) traceParent(ctx context.Context) string {
	parent := c.mux.cfg.TraceParent
	if parent == nil {
		return ""
	}
	text := parent(ctx)
	if len(text) > maxTraceParent || !utf8.ValidString(text) {
		return "" // an invalid trace header must not make a call fail
	}
	return text
}

// call returns the call for the next attempt.
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

// await submits a call and waits for its first answer, which may be the only one.
func (c *Client) await(ctx context.Context, l *link, q *call) (*pb.Response, error) {
	q.answered = c.tokens.get()
	if err := l.submit(q); err != nil {
		return nil, err
	}
	select {
	case <-q.answered:
		c.tokens.put(q.answered) // a call sends only one token, so the channel is empty again
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

// tokens is a pool of empty channels of capacity 1. Each client has its own pool, because channels
// from one synctest bubble must not be used in another.
type tokens struct{ pool sync.Pool }

func (t *tokens) get() chan struct{} {
	if c, ok := t.pool.Get().(chan struct{}); ok {
		return c
	}
	return make(chan struct{}, 1)
}

func (t *tokens) put(c chan struct{}) { t.pool.Put(c) }
