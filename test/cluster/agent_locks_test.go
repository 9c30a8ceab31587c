package cluster

import (
	"context"
	"errors"
	"time"

	"leasehold.dev/client/lock"
)

// permits is how many may hold the semaphore.
const permits = 3

// The ways in which a thing is held.
const (
	modeAlone  = "alone"
	modeShared = "shared"
)

// What is held, but for items, IDs, members and nodes.
const (
	theMutex     = "mutex"
	theRWMutex   = "rwmutex"
	theSemaphore = "semaphore"
	theElection  = "election"
)

// A latch is a lock in one of its kinds.
type latch struct {
	lock, try func(context.Context) (*lock.Held, error)
	within    func(context.Context, time.Duration) (*lock.Held, error)
}

// take takes a lock in one of the ways there are.
func (h *hand) take(l latch) (*lock.Held, error) {
	ctx, cancel := h.brief()
	defer cancel()
	switch h.rng.IntN(6) {
	case 0:
		return l.try(ctx)
	case 1, 2:
		return l.within(ctx, between(h.rng, 1, 500))
	default:
		return l.lock(ctx)
	}
}

func locked(what, mode string, s *lock.Session, held *lock.Held) *thing {
	return &thing{
		what: what, mode: mode, token: uint64(held.Token()), mark: held.Revision(),
		lease: s.Lease(), err: held.Err, owner: held.Owner(), give: held.Release,
	}
}

func useMutex(h *hand) error {
	h.doing = "mutex"
	return h.session(func(s *lock.Session) error {
		m := s.Mutex(usedPrefix + theMutex)
		held, err := h.take(latch{m.Lock, m.TryLock, m.LockWithin})
		if err != nil {
			return err
		}
		return h.use(locked(theMutex, modeAlone, s, held))
	})
}

// useLock takes the lock for which nobody makes a session. It has no lease that could be asked.
func useLock(h *hand) error {
	h.doing = "lock"
	ctx, cancel := h.brief()
	defer cancel()
	take := lock.Lock
	if h.rng.IntN(3) == 0 {
		take = lock.TryLock
	}
	held, err := take(ctx, h.conn(), usedPrefix+theMutex, h.ttl())
	if err != nil {
		return err
	}
	x := &thing{
		what: theMutex, mode: modeAlone, token: uint64(held.Token()), mark: held.Revision(),
		err: held.Err, owner: held.Owner(),
	}
	span := h.hold(x)
	h.have(held.Context(), span, x, h.stint())
	h.end(span, endGiven)
	last, done := h.last()
	defer done()
	if h.one(6) {
		last, done = context.WithTimeout(last, between(h.rng, 0, 5)-time.Millisecond)
		defer done()
	}
	return held.Release(last)
}

func useRWMutex(h *hand) error {
	h.doing = "rwmutex"
	return h.session(func(s *lock.Session) error {
		m := s.RWMutex(usedPrefix + theRWMutex)
		l, mode := latch{m.RLock, m.TryRLock, m.RLockWithin}, modeShared
		if h.rng.IntN(3) == 0 {
			l, mode = latch{m.Lock, m.TryLock, m.LockWithin}, modeAlone
		}
		held, err := h.take(l)
		if err != nil {
			return err
		}
		return h.use(locked(theRWMutex, mode, s, held))
	})
}

func useSemaphore(h *hand) error {
	h.doing = "semaphore"
	return h.session(func(s *lock.Session) error {
		m := s.Semaphore(usedPrefix+theSemaphore, permits)
		l := latch{m.Acquire, m.TryAcquire, m.AcquireWithin}
		held, err := h.take(l)
		if err != nil {
			return err
		}
		x := locked(theSemaphore, modeShared, s, held)
		if h.rng.IntN(3) > 0 {
			return h.use(x)
		}
		return h.useTwo(x, func() (*thing, error) {
			second, err := h.take(l)
			if err != nil {
				return nil, err
			}
			return locked(theSemaphore, modeShared, s, second), nil
		})
	})
}

// useTwo has two things of one session.
func (h *hand) useTwo(x *thing, more func() (*thing, error)) error {
	span := h.hold(x)
	h.have(h.ctx, span, x, 0)
	y, err := more()
	last, done := h.last()
	defer done()
	if err == nil {
		second := h.hold(y)
		h.have(h.ctx, second, y, h.stint())
		h.end(second, endGiven)
		err = y.give(last)
	}
	h.have(h.ctx, span, x, h.stint())
	h.end(span, endGiven)
	return errors.Join(err, x.give(last))
}

func standForElection(h *hand) error {
	h.doing = "election"
	return h.session(func(s *lock.Session) error {
		e := lock.NewElection(h.conn(), usedPrefix+theElection)
		ctx, cancel := h.brief()
		defer cancel()
		if h.one(8) {
			if err := e.Prefer(ctx, h.other()); err != nil {
				return err
			}
		}
		c := lock.Candidate{ID: h.Name, Value: []byte(h.unique()), Priority: h.rng.IntN(3)}
		if h.rng.IntN(3) == 0 {
			l, err := e.Campaign(ctx, s, c)
			if err != nil {
				return err
			}
			return h.use(leads(s, l))
		}
		return e.Lead(ctx, s, c, func(ctx context.Context, l *lock.Leading) error {
			return h.lead(ctx, s, l)
		})
	})
}

func leads(s *lock.Session, l *lock.Leading) *thing {
	return &thing{
		what: theElection, mode: modeAlone, token: uint64(l.Token()), mark: l.Revision(),
		lease: s.Lease(), err: l.Err, owner: l.Owner(), give: l.Release,
	}
}

// lead leads until the context ends, or for as long as it likes.
func (h *hand) lead(ctx context.Context, s *lock.Session, l *lock.Leading) error {
	x := leads(s, l)
	span := h.hold(x)
	h.have(ctx, span, x, h.stint())
	if h.rng.IntN(2) == 0 {
		if err := l.Proclaim(ctx, []byte(h.unique())); err != nil {
			h.end(span, endGiven)
			return err
		}
		h.have(ctx, span, x, h.stint())
	}
	h.end(span, endGiven)
	switch {
	case h.rng.IntN(3) == 0:
		return l.HandOver(ctx, h.other())
	case h.one(6):
		x.lease.Close()
	case h.one(6):
		h.drop(h.at)
	}
	return nil
}

// other returns the name of an agent.
func (h *hand) other() string { return h.Others[h.rng.IntN(len(h.Others))] }

func observeElection(h *hand) error {
	h.doing = "observe"
	name := h.unique()
	for l, err := range lock.NewElection(h.conn(), usedPrefix+theElection).Observe(h.ctx) {
		if err != nil {
			return err
		}
		h.write(note{
			Verb: noteLeader, What: name, Mark: l.Since, Text: string(l.Value), Revision: l.Revision,
		})
	}
	return nil
}
