package coord

import (
	"context"
	"errors"
	"slices"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/lease"
)

// guardDelay is how old a place is before its key is watched, so that a lock that is soon
// given up costs no watch.
const guardDelay = 10 * time.Millisecond

// lookEvery is how often the key of a place is looked at that cannot be watched.
const lookEvery = time.Second

// fresh is how old a sight of the line may be, in which the place's own key was, so that what
// the watches tell since then is enough to take the turn (T16): no older than what anyway may
// pass until one whose key somebody deletes is told.
const fresh = guardDelay

// place is a place in a line. Except for guard it belongs to the caller who waits at it.
type place struct {
	*line
	key      string
	revision int64 // create revision of the key
	token    lease.Token
	seen     sight
	last     *watched // those that it waits for, nil for none
	gate     *watched
	guardian *time.Timer // runs guard
	// ctx ends with the lease, when the key is gone, and when the place is given up.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// sight is who was before the place, oldest first, as of a revision in which its own key was
// there, and that was not before the time.
type sight struct {
	before   []client.KV
	revision int64
	at       time.Time
}

// watched is a watch of a key that is to go.
type watched struct {
	key string
	*client.Watcher
}

// wait waits until it is the place's turn.
func (p *place) wait(ctx context.Context) error {
	if !p.free(p.seen.before) {
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		defer context.AfterFunc(p.ctx, func() { stop(context.Cause(p.ctx)) })()
		turn := p.turn
		if p.permits > 0 {
			turn = p.permit
		}
		if err := turn(ctx); err != nil {
			return err
		}
	}
	return p.check(ctx)
}

// check looks at the lease and the context again, by the clock: the process may have been
// stopped (T16).
func (p *place) check(ctx context.Context) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	if err := p.session.lease.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// turn waits as the rule says.
//
// That a key went does not say that all before it had: its holder may have given up waiting.
// To look at the line when it goes takes time in which nobody holds. So the line is looked at
// while the last one before holds, when the one before him goes, and then the last one's
// going is enough to know.
func (p *place) turn(ctx context.Context) error {
	for {
		last, gate := p.rule(p.seen.before)
		if last == nil {
			return nil
		}
		if err := errors.Join(p.follow(&p.last, last), p.follow(&p.gate, gate)); err != nil {
			return err
		}
		first := p.last
		if gate != nil {
			first = p.gate
		}
		at, err := first.gone(ctx)
		if err == nil && gate == nil && at > 0 && time.Since(p.seen.at) < fresh {
			return nil
		}
		if err == nil {
			err = p.look(ctx, at)
		}
		if err != nil {
			return err
		}
	}
}

// follow watches a key, if it is not watched, from what was seen on.
func (p *place) follow(w **watched, kv *client.KV) error {
	if *w != nil && kv != nil && (*w).key == kv.Key {
		return nil
	}
	if *w != nil {
		(*w).Close()
		*w = nil
	}
	if kv == nil {
		return nil
	}
	watch, err := p.session.client.WatchFrom(client.Watch{
		Key: kv.Key, From: p.seen.revision + 1, NoPut: true,
	})
	if err == nil {
		*w = &watched{kv.Key, watch}
	}
	return err
}

// gone returns when the key has gone, and at which revision; 0 if it is not known any more
// whether it has.
func (w *watched) gone(ctx context.Context) (revision int64, err error) {
	u, err := w.Next(ctx)
	if err == nil || errors.Is(err, client.ErrCompacted) {
		w.key = "" // there is nothing more to be told
		return u.Revision, nil
	}
	return 0, err
}

// look sees the line anew, as of a revision from at on. It fails with ErrLost if the place's
// own key is gone (T16).
func (p *place) look(ctx context.Context, at int64) error {
	// The member that told of the revision has it, so that its word will do. But the
	// client may have turned to another meanwhile.
	ask, now := p.all(), time.Now()
	ask.Serializable = at > 0
	r, err := p.session.client.Range(ctx, ask)
	if err == nil && r.Revision < at {
		ask.Serializable = false
		r, err = p.session.client.Range(ctx, ask)
	}
	if err != nil {
		return err
	}
	list, own := p.sort(r.KVs, p.key)
	if own == nil || own.CreateRevision != p.revision {
		return ErrLost
	}
	p.seen = sight{before(list, p.revision), r.Revision, now}
	return nil
}

// guard ends the place when its key is gone. It returns when the place has ended.
func (p *place) guard() {
	own := &watched{}
	for from := p.revision + 1; p.ctx.Err() == nil; {
		w, err := p.session.client.WatchFrom(client.Watch{Key: p.key, From: from, NoPut: true})
		if err == nil {
			own.Watcher = w
			from, err = own.gone(p.ctx)
			w.Close()
		}
		switch {
		case errors.Is(err, client.ErrInvalid):
			// The client has no room for another watch: a holder is not to lose for that.
			select {
			case <-time.After(lookEvery):
				from, err = p.there(p.ctx)
			case <-p.ctx.Done():
			}
		case err == nil && from == 0:
			from, err = p.there(p.ctx)
		case err == nil:
			err = ErrLost
		}
		if err != nil && p.ctx.Err() == nil {
			p.cancel(err)
		}
	}
}

// there returns the first revision after one at which the place's key was there.
func (p *place) there(ctx context.Context) (int64, error) {
	r, err := p.session.client.Range(ctx, client.Range{Key: p.key, KeysOnly: true})
	if err == nil && (len(r.KVs) == 0 || r.KVs[0].CreateRevision != p.revision) {
		err = ErrLost
	}
	return r.Revision + 1, err
}

// leave gives the place up, if its key is still its own. It reports whether the key was
// there. If the context ends before that is known it goes on by itself.
func (p *place) leave(ctx context.Context, why error) (was bool, err error) {
	p.end(why)
	s := p.session
	was, err = s.remove(ctx, p.self())
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

// end ends what goes on for the place in this process. The watches end only now, so that
// the member learns of it by the message that gives up the place.
func (p *place) end(why error) {
	p.cancel(why)
	p.guardian.Stop()
	for _, w := range []*watched{p.last, p.gate} {
		if w != nil {
			w.Close()
		}
	}
}

// self is the place's key, if it is its own.
func (p *place) self() ownKey { return ownKey{p.key, p.owner()} }

func (p *place) owner() client.Compare {
	return client.CompareCreateRevision(p.key, client.Equal, p.revision)
}

// permit waits until so few are before the place that one of the permits is left. Whoever of
// them goes counts, so it is told of everybody who goes.
func (p *place) permit(ctx context.Context) error {
	all := p.all()
	for !p.free(p.seen.before) {
		w, err := p.session.client.WatchFrom(client.Watch{
			Key: all.Key, End: all.End, From: p.seen.revision + 1, NoPut: true,
		})
		if err != nil {
			return err
		}
		at, err := p.dwindle(ctx, w)
		w.Close()
		if err == nil && (at == 0 || time.Since(p.seen.at) >= fresh) {
			err = p.look(ctx, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dwindle returns when, by what a watch tells, enough of those before the place are gone,
// and at which revision; 0 if it is not known any more.
func (p *place) dwindle(ctx context.Context, w *client.Watcher) (revision int64, err error) {
	for !p.free(p.seen.before) {
		u, err := w.Next(ctx)
		if errors.Is(err, client.ErrCompacted) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		revision = u.Revision
		for _, e := range u.Events {
			p.seen.before = slices.DeleteFunc(p.seen.before, func(kv client.KV) bool {
				return kv.Key == e.KV.Key
			})
		}
	}
	return revision, nil
}
