package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"leasehold.dev/client/internal/background"
	"leasehold.dev/client/internal/uses"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// Session describes the session that [Client.Run] and [Client.Open] open: one lease, on which
// everything depends that the program acquires in the session.
type Session struct {
	// TTL is how long the program's holds stay taken after it has failed; 10 s if 0.
	TTL time.Duration
	// Owner is the program's label, such as its host, for people and for programs that find
	// something taken.
	Owner string
	// Labels are labels of the lease.
	Labels map[string]string
}

// defaultTTL is the TTL of a session if the program sets none.
const defaultTTL = 10 * time.Second

var _ Hold = (*Live)(nil)

// Live is an open session. Packages lock and members use it for locks, elections and group
// memberships. All of them end with the session, and a lost session never returns: the program
// opens another one, as [Client.Run] does. Its methods may be called from any goroutine.
type Live struct {
	lease *Lease
	ctx   context.Context
}

// Open opens a session. The client keeps it alive until Release, or until it is lost.
func (c *Client) Open(ctx context.Context, s Session) (*Live, error) {
	if s.TTL == 0 {
		s.TTL = defaultTTL
	}
	// No grace: a session that was not renewed in time is lost.
	l, err := c.Grant(ctx, Grant{TTL: s.TTL, Owner: s.Owner, Labels: s.Labels, Grace: -1})
	if err != nil {
		return nil, err
	}
	return l.Session(), nil
}

// Session returns the session on a lease that the program granted itself, for example to give it a
// name. It returns the same one each time. If the lease stops being valid, the session is lost,
// even if the lease returns from [Jeopardy].
func (l *Lease) Session() *Live {
	l.once.Do(func() { l.live = &Live{lease: l, ctx: uses.With(l.Context())} })
	return l.live
}

// Client returns the client of the session.
func (s *Live) Client() *Client { return s.lease.client }

// Lease returns the lease of the session.
func (s *Live) Lease() *Lease { return s.lease }

// Token returns the fencing token of the lease. A lock has a token of its own.
func (s *Live) Token() lease.Token { return s.lease.Token() }

// Context returns a context that ends when the session is lost or released, before the cluster may
// grant to others what the session holds. Its cause is the reason.
func (s *Live) Context() context.Context { return s.ctx }

// Err returns nil while the session is valid, by the clock, and then why it is not.
func (s *Live) Err() error {
	switch {
	case s.ctx.Err() != nil:
		return fault.Cause(s.ctx)
	case s.lease.Valid():
		return nil
	default:
		return s.lease.Err()
	}
}

// ValidUntil returns when the program must stop, unless a renewal succeeds before. It is zero if
// the session has ended.
func (s *Live) ValidUntil() time.Time {
	if s.Err() != nil {
		return time.Time{}
	}
	return s.lease.ValidUntil()
}

// Release ends the session and everything acquired in it: see [Lease.Revoke].
func (s *Live) Release(ctx context.Context) error { return s.lease.Revoke(ctx) }

// Run opens a session and calls f in it. The context of f ends with ctx, and when the session is
// lost, before others can get what f has acquired. f must then return. When f returns, Run releases
// the session, even if ctx has ended.
//
// If the session was lost before f returned, Run waits a little, longer after each short session,
// and calls f again in a new one. Otherwise it returns the result of f.
//
// Run returns an error if it cannot open the first session. Later it keeps trying until ctx ends.
func (c *Client) Run(
	ctx context.Context, s Session, f func(ctx context.Context, s *Live) error,
) error {
	live, err := c.Open(ctx, s)
	if err != nil {
		return err
	}
	for short := 0; ; {
		opened := c.clock.source()
		err, lost := live.run(ctx, f)
		if lost == nil || ctx.Err() != nil || errors.Is(lost, ErrClosed) {
			return fault.Join(err, lost)
		}
		if short++; c.clock.source().Sub(opened) > max(s.TTL, longestBackOff) {
			short = 1
		}
		c.mux.log.Warn("session lost, opening another one", slog.Any("error", lost))
		if live, err = c.reopen(ctx, s, short); err != nil {
			return fault.Join(lost, err)
		}
	}
}

// run calls f, and releases the session. It also returns why the session was lost, if that was
// before f returned.
func (s *Live) run(
	ctx context.Context, f func(ctx context.Context, s *Live) error,
) (err, lost error) {
	during, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() {
		if why := fault.Cause(s.ctx); !byProgram(why) { // else f may still wait for the release
			cancel(why)
		}
	})()
	defer func() { // even if f panics
		last, done := context.WithTimeout(context.WithoutCancel(ctx), background.Wait)
		defer done()
		if lost = s.Err(); lost != nil {
			done() // the cluster may be unreachable, and the lease expires anyway
		}
		if byProgram(lost) {
			lost = nil
		}
		_ = s.Release(last)
	}()
	return f(during, s), nil
}

// byProgram reports whether a session ended because the program gave it up.
func byProgram(why error) bool {
	return errors.Is(why, ErrReleased) || errors.Is(why, ErrHandedOver)
}

// longestBackOff bounds the wait between sessions in Run.
const longestBackOff = 10 * time.Second

// reopen opens a session after a number of consecutive short ones.
func (c *Client) reopen(ctx context.Context, s Session, short int) (*Live, error) {
	for ; ; short++ {
		d := min(50*time.Millisecond<<min(short, 10), longestBackOff)
		if err := c.mux.pause(ctx, d/2+rand.N(d/2)); err != nil {
			return nil, fmt.Errorf("client: open a session: %w", err)
		}
		live, err := c.Open(ctx, s)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return live, err
		}
		c.mux.log.Warn("cannot open a session", slog.Any("error", err))
	}
}
