package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/uses"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// defaultTTL is the TTL of a session if the program does not set one.
const defaultTTL = 10 * time.Second

var _ Hold = (*Session)(nil)

// Session is an open session. Packages lock and members use it for locks, elections and group
// memberships, all of which end when the session ends. A lost session cannot be recovered: the
// program opens another one, as [Client.Run] does. Its methods are safe for concurrent use.
type Session struct {
	lease *Lease
	ctx   context.Context
}

// Open grants a lease and opens a session on it. The TTL is 10 s if g.TTL is 0. The client keeps
// the lease alive until Release is called or the lease is lost. A session has no grace period and
// no request ID; Open rejects a Grant that sets either.
func (c *Client) Open(ctx context.Context, g Grant) (*Session, error) {
	if g.Grace > 0 || g.RequestID != "" {
		return nil, fmt.Errorf("client: open a session: %w: grace and request ID cannot be set", ErrInvalid)
	}
	if g.TTL == 0 {
		g.TTL = defaultTTL
	}
	g.Grace = -1
	l, err := c.Grant(ctx, g)
	if err != nil {
		return nil, err
	}
	return l.Session(), nil
}

// Session returns the session on a lease that the program already holds, for example a resumed
// lease. Every call returns the same session. If the lease stops being valid, the session is lost,
// even if the lease becomes valid again after [ErrJeopardy].
func (l *Lease) Session() *Session {
	l.once.Do(func() { l.session = &Session{lease: l, ctx: uses.With(l.Context())} })
	return l.session
}

// Client returns the client that opened the session.
func (s *Session) Client() *Client { return s.lease.client }

// Lease returns the session's lease.
func (s *Session) Lease() *Lease { return s.lease }

// Token returns the lease's fencing token. A lock acquired in the session has its own token.
func (s *Session) Token() lease.Token { return s.lease.Token() }

// Context returns a context that is canceled when the session is lost or released. That happens
// before the cluster can grant the session's locks to others. The context's cause is the reason.
func (s *Session) Context() context.Context { return s.ctx }

// Err returns nil while the session is valid according to the clock. After that it returns the
// reason why the session ended.
func (s *Session) Err() error {
	switch {
	case s.ctx.Err() != nil:
		return fault.Cause(s.ctx)
	case s.lease.Valid():
		return nil
	default:
		return s.lease.Err()
	}
}

// ValidUntil returns the time by which the program must stop unless a renewal succeeds first. It is
// zero if the session has ended.
func (s *Session) ValidUntil() time.Time {
	if s.Err() != nil {
		return time.Time{}
	}
	return s.lease.ValidUntil()
}

// Release ends the session and everything acquired in it. See [Lease.Revoke].
func (s *Session) Release(ctx context.Context) error { return s.lease.Revoke(ctx) }

// Run opens a session and calls f in it. The context passed to f is canceled when ctx ends or the
// session is lost, before others can acquire what f holds. f must then return. When f returns, Run
// releases the session, even if ctx has ended.
//
// If the session was lost before f returned, Run logs the loss, waits (longer after each short
// session in a row), and calls f again in a new session. It first revokes the lost lease, in case
// the cluster still has it. In all other cases Run returns the result of f.
//
// Run returns an error if it cannot open the first session. If it cannot open a later one, it keeps
// trying until ctx ends.
func (c *Client) Run(
	ctx context.Context, g Grant, f func(ctx context.Context, s *Session) error,
) error {
	session, err := c.Open(ctx, g)
	if err != nil {
		return err
	}
	for short := 0; ; {
		opened := c.clock.source()
		err, lost := session.run(ctx, f)
		if lost == nil || ctx.Err() != nil || errors.Is(lost, ErrClosed) {
			return fault.Join(err, lost)
		}
		if short++; c.clock.source().Sub(opened) > max(g.TTL, longestBackOff) {
			short = 1
		}
		c.log.Warn("session lost, opening a new one", "error", lost)
		if session, err = c.reopen(ctx, g, session.lease, short); err != nil {
			return fault.Join(lost, err)
		}
	}
}

// run calls f and releases the session. If the session was lost before f returned, run also returns
// the reason.
func (s *Session) run(
	ctx context.Context, f func(ctx context.Context, s *Session) error,
) (err, lost error) {
	during, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() {
		// otherwise f may still be waiting for the release
		if why := fault.Cause(s.ctx); !byProgram(why) {
			cancel(why)
		}
	})()
	defer func() { // runs even if f panics
		last, done := context.WithTimeout(context.WithoutCancel(ctx), background.Wait)
		defer done()
		if lost = s.Err(); lost != nil {
			done() // do not wait: the cluster may be unreachable, and the lease expires anyway
		}
		if byProgram(lost) {
			lost = nil
		}
		_ = s.Release(last)
	}()
	return f(during, s), nil
}

// byProgram reports whether a session ended because the program released it or handed it over.
func byProgram(why error) bool {
	return errors.Is(why, ErrReleased) || errors.Is(why, ErrHandedOver)
}

// longestBackOff caps the wait between sessions in Run.
const longestBackOff = 10 * time.Second

// reopen opens a session after short consecutive sessions. last is the lease of the most recent
// one.
func (c *Client) reopen(ctx context.Context, g Grant, last *Lease, short int) (*Session, error) {
	gone := errors.Is(last.Err(), ErrLost)
	for ; ; short++ {
		d := backoff.Delay(short, 50*time.Millisecond, longestBackOff)
		if err := c.mux.pause(ctx, d); err != nil {
			return nil, fmt.Errorf("client: open a session: %w", err)
		}
		if !gone { // otherwise its keys would block the new session until the lease expires
			err := c.Revoke(ctx, last.Ref())
			gone = err == nil || errors.Is(err, ErrLeaseNotFound)
		}
		session, err := c.Open(ctx, g)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return session, err
		}
		c.log.Warn("cannot open a session", "error", err)
	}
}
