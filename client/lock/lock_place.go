package lock

import (
	"context"
	"errors"
	"sync"

	"leasehold.dev/client"
	"leasehold.dev/internal/fault"
	"leasehold.dev/lease"
)

// place is a place in a line.
type place struct {
	*line
	key      string
	revision int64 // create revision of the key
	token    lease.Token
	turn     *client.Turn
	// during is the lease's context when the place was taken: it ends when the lease is not
	// valid, and does not come back.
	during context.Context

	mu  sync.Mutex // guards what follows
	why error      // why the place is over, as soon as somebody knows
	// ctx ends with the lease, when the key is gone, and when the place is given up. It is
	// nil until somebody asks.
	ctx    context.Context
	cancel context.CancelCauseFunc
	unbind func() bool // ends what ends ctx with the key
}

// take begins a place whose key was just made.
func (l *line) take(key string, r client.TxnResult, turn *client.Turn) *place {
	return &place{
		line: l, key: key, revision: turn.Revision(), token: r.Results[1].Token, turn: turn,
		during: l.session.lease.Context(),
	}
}

// over returns why the place is over, nil as long as it is not.
func (p *place) over() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overLocked()
}

func (p *place) overLocked() error {
	switch {
	case p.why != nil:
	case p.ctx != nil && p.ctx.Err() != nil: // it has ended with what came first
		p.why = fault.Cause(p.ctx)
	case p.during.Err() != nil:
		p.why = fault.Cause(p.during)
	default:
		p.why = p.lost()
	}
	return p.why
}

// context returns a context that ends when the place is over, which is its cause.
func (p *place) context() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx != nil {
		return p.ctx
	}
	if err := p.overLocked(); err != nil {
		p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(p.during))
		p.unbind = func() bool { return true }
		p.cancel(fault.Canceled(err))
		return p.ctx
	}
	p.ctx, p.cancel = context.WithCancelCause(p.during)
	p.unbind = context.AfterFunc(p.turn.Context(), func() { p.cancel(fault.Canceled(p.lost())) })
	return p.ctx
}

// lost returns why the key is gone, nil as long as nobody has said so.
func (p *place) lost() error {
	err := p.turn.Err()
	if err == nil {
		return nil
	}
	var gone *client.GoneError
	if errors.As(err, &gone) {
		return &lostError{gone}
	}
	return err
}

// lostError is ErrLost with what took the key.
type lostError struct{ gone *client.GoneError }

func (e *lostError) Error() string {
	switch e.gone.Why {
	case client.Deleted:
		return ErrLost.Error() + ": its key was deleted"
	case client.Expired:
		return ErrLost.Error() + ": its lease has expired"
	case client.Revoked:
		return ErrLost.Error() + ": its lease was revoked"
	default:
		return ErrLost.Error() + ", " + e.gone.Why.String()
	}
}

func (e *lostError) Unwrap() []error { return []error{ErrLost, e.gone} }

// wait waits until it is the place's turn: the member says so.
func (p *place) wait(ctx context.Context) error {
	if !p.now() {
		select {
		case <-p.turn.Come():
		case <-p.context().Done():
		case <-ctx.Done():
		}
	}
	if err := p.check(); err != nil {
		return err
	}
	return fault.Cause(ctx)
}

// now reports whether it is the place's turn already.
func (p *place) now() bool {
	select {
	case <-p.turn.Come():
		return true
	default:
		return false
	}
}

// check looks at the lease again, by the clock: the process may have been stopped (T16). The
// member has seen the place's key when it was its turn, and says when it is gone.
func (p *place) check() error {
	if err := p.over(); err != nil {
		return err
	}
	return p.session.err()
}

// look returns who is before the place, oldest first. It fails with ErrLost if the place's
// own key is gone (T16).
func (p *place) look(ctx context.Context) ([]client.KV, error) {
	r, err := p.session.client.Range(ctx, p.all())
	if err != nil {
		return nil, err
	}
	list, own := p.sort(r.KVs, p.key)
	if own == nil || own.CreateRevision != p.revision {
		return nil, ErrLost
	}
	return before(list, placeOf(own)), nil
}

// leave gives the place up, if its key is still its own. It reports whether the key was
// there. If the context ends before that is known it goes on by itself.
func (p *place) leave(ctx context.Context, why error) (was bool, err error) {
	p.stop(why)
	s := p.session
	was, err = p.self().remove(ctx, p.turn.Leave)
	if err != nil {
		s.giveUp(p.key, func() { s.clean(p.self()) })
		return false, err
	}
	s.unuse(p.key)
	return was, nil
}

// abandon gives up a place that was waited at in vain; nobody waits for that.
func (p *place) abandon(why error) {
	p.end(why)
	p.session.giveUp(p.key, func() { p.session.clean(p.self()) })
}

// stop ends what goes on for the place in this process, but for its turn: the message that
// gives up the place ends that.
func (p *place) stop(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overLocked() == nil {
		p.why = why
	}
	if p.ctx != nil {
		p.unbind()
		p.cancel(fault.Canceled(p.why))
	}
}

// end ends all that goes on for the place.
func (p *place) end(why error) {
	p.stop(why)
	p.turn.Close()
}

// self is the place's key, if it is its own.
func (p *place) self() ownKey { return ownKey{p.key, p.owner()} }

func (p *place) owner() client.Compare {
	return client.Key(p.key).CreateRevision(client.Equal, p.revision)
}
