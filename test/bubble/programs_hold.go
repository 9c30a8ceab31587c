package bubble

import (
	"context"
	"errors"
	"fmt"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/lock"
)

// permits is the number of permits in the semaphore, and loans is the number of IDs in the pool.
const permits, loans = 2, 2

// share acquires a semaphore permit or a read/write lock.
func share(p *process) error {
	ctx, cancel := p.within(30 * time.Second)
	defer cancel()
	l, err := p.c.Grant(ctx, client.Grant{TTL: p.between(time.Second, 5*time.Second)})
	if err != nil {
		return err
	}
	defer l.Close()
	s := l.Session()
	what, take, room := "semaphore", lock.NewSemaphore(s, "semaphore", permits).Acquire, permits-1
	switch p.intn(3) {
	case 1:
		what, take, room = "rwlock", lock.NewRWMutex(s, "rwlock").Lock, 0
	case 2:
		what, take, room = "rwlock", lock.NewRWMutex(s, "rwlock").RLock, len(p.w.roles)
	}
	h, err := take(ctx)
	if err != nil {
		return err
	}
	b := p.w.h.Share(what, p, room, h.Err)
	p.wait(h.Context(), p.between(0, 3*time.Second))
	b.Release()
	return h.Release(p.ctx)
}

// borrow borrows an ID from a pool.
func borrow(p *process) error {
	ctx, cancel := p.within(30 * time.Second)
	defer cancel()
	from, err := pool.Open(ctx, p.c, "pool")
	if errors.Is(err, pool.ErrNotFound) {
		from, err = pool.Create(ctx, p.c, "pool", pool.Spec{First: 1, Last: loans})
	}
	if err != nil {
		return err
	}
	l, err := from.Acquire(ctx, pool.Request{
		Owner: p.on.Name, TTL: p.between(time.Second, 5*time.Second),
	})
	if err != nil {
		return err
	}
	b := p.w.h.Hold("pool "+l.ID(), p, uint64(l.Token()), l.Err)
	p.wait(l.Context(), p.between(0, 5*time.Second))
	b.Release()
	if p.intn(3) == 0 {
		l.Lease().Close()
		return nil
	}
	return l.Release(p.ctx)
}

// lead joins a set of nodes and acts as its primary for a while.
func lead(p *process) error {
	ctx, cancel := p.within(time.Minute)
	defer cancel()
	n, err := nodes.New(p.c, "nodes").Join(ctx, nodes.Config{
		ID: fmt.Sprint(p.on.Name, "-", p.w.unique()), TTL: p.between(time.Second, 5*time.Second),
	})
	if err != nil {
		return err
	}
	err = n.Lead(ctx, func(ctx context.Context, l *nodes.Primacy) error {
		b := p.w.h.Hold("primary", p, uint64(l.Token()), l.Err)
		defer b.Release()
		p.wait(ctx, p.between(0, 5*time.Second))
		return nil
	})
	return errors.Join(err, n.Release(p.ctx))
}
