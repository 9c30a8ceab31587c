package bubble

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"go.etcd.io/etcd/client/v3/concurrency"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
	"leasehold.dev/test/history"
)

const leased = "l/"

// keep grants leases and keeps them alive for a while. Each lease has a key, and some have a name.
func keep(p *process) error {
	ctx, cancel := p.within(20 * time.Second)
	defer cancel()
	key, name := leased+p.w.unique(), ""
	if p.intn(2) == 0 {
		name = fmt.Sprint("name", p.intn(2))
	}
	l, err := p.c.Grant(ctx, client.Grant{
		TTL: p.between(time.Second, 6*time.Second), Name: name,
		Keys: []store.KV{{Key: key, Value: []byte(p.on.Name)}},
	})
	if err != nil {
		if errors.Is(err, client.ErrNameTaken) {
			return nil
		}
		return err
	}
	b, err := p.believe(ctx, l, key)
	if err != nil {
		l.Close()
		return err
	}
	held := b
	if name != "" {
		held = p.w.h.Hold(name, p, uint64(l.Token()), l.Err)
	}
	p.wait(l.Context(), p.between(time.Second, 30*time.Second))
	b.Release()
	held.Release()
	if p.intn(2) == 0 {
		l.Close() // lets the lease expire
		return nil
	}
	return l.Revoke(ctx)
}

// believe records that a lease with a key was granted. An earlier grant without a response may have
// succeeded as well. In that case, its lease has expired and the client was granted the lease
// again, so believe records the key's current revision.
func (p *process) believe(
	ctx context.Context, l *client.Lease, key string,
) (*history.Belief, error) {
	kv, err := p.c.Get(ctx, key)
	if err != nil && !errors.Is(err, client.ErrKeyNotFound) {
		return nil, err
	}
	b := p.w.h.Attach(key, p, kv.ModRevision, l.Err)
	if err != nil {
		p.w.h.Deleted(key, store.Unknown, history.Never)
	}
	return b, nil
}

// leave grants a lease and does not keep it alive.
func leave(p *process) error {
	ctx, cancel := p.within(20 * time.Second)
	defer cancel()
	key, ttl := leased+p.w.unique(), p.between(time.Second, 6*time.Second)
	until := p.w.h.Now() + time.Duration(float64(ttl)*(1-2*driftBound))
	p.w.h.Attach(key, p, 0, func() error {
		if p.w.h.Now() < until {
			return nil
		}
		return client.ErrExpired
	})
	_, err := p.c.GrantOnly(ctx, client.Grant{
		TTL: ttl, Keys: []store.KV{{Key: key, Value: []byte(p.on.Name)}},
	})
	p.sleep(0, ttl)
	return err
}

// observe watches for the deletion of leased keys.
func observe(p *process) error {
	w, err := p.c.Watch(p.ctx, store.Watch{Key: leased, End: store.Prefix(leased).End, NoPut: true})
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		u, err := w.Next(p.ctx)
		if err != nil {
			return nil
		}
		for _, e := range u.Events {
			p.w.h.Deleted(e.KV.Key, e.Cause, e.KV.ModRevision)
		}
	}
}

// locks acquires successive locks and roles on one session.
func locks(p *process) error {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	l, err := p.c.Grant(ctx, client.Grant{TTL: p.between(time.Second, 5*time.Second)})
	if err != nil {
		return err
	}
	defer l.Close()
	s := l.Session()
	for l.Err() == nil && ctx.Err() == nil && p.intn(20) > 0 {
		what := fmt.Sprint("lock", p.intn(2))
		if err := p.lockOnce(ctx, s, what); err != nil {
			p.w.h.Count("errors")
		}
		p.sleep(0, 200*time.Millisecond)
	}
	return nil
}

func (p *process) lockOnce(ctx context.Context, s *client.Session, what string) error {
	wait, cancel := context.WithTimeout(ctx, p.between(time.Second, 30*time.Second))
	defer cancel()
	if p.intn(2) == 0 {
		h, err := lock.NewMutex(s, what).Lock(wait)
		if err != nil {
			return err
		}
		b := p.w.h.Hold(what, p, uint64(h.Token()), h.Err)
		p.wait(h.Context(), p.between(0, 3*time.Second))
		b.Release()
		return h.Release(ctx)
	}
	h, err := lock.NewElection(p.c, "role-"+what).Campaign(wait, s, lock.Candidate{})
	if err != nil {
		return err
	}
	b := p.w.h.Hold("role-"+what, p, uint64(h.Token()), h.Err)
	p.wait(h.Context(), p.between(0, 3*time.Second))
	b.Release()
	return h.Release(ctx)
}

// lockEtcd acquires a lock with the etcd client. That client does not report how long the lock
// remains valid, so only the order of the locks is checked.
func lockEtcd(p *process) error {
	s, err := concurrency.NewSession(p.etcd, concurrency.WithTTL(3), concurrency.WithContext(p.ctx))
	if err != nil {
		return err
	}
	defer s.Orphan()
	m := concurrency.NewMutex(s, "etcd-lock")
	for p.ctx.Err() == nil && p.intn(20) > 0 {
		ctx, cancel := p.within(30 * time.Second)
		err := m.Lock(ctx)
		cancel()
		if err != nil {
			return err
		}
		r, err := p.etcd.Get(p.ctx, m.Key())
		if err == nil && len(r.Kvs) > 0 {
			lost := func() error { return client.ErrLost } // the etcd client does not report losses
			p.w.h.Hold("etcd-lock", p, uint64(r.Kvs[0].CreateRevision), lost)
		}
		p.sleep(0, time.Second)
		ctx, cancel = p.within(30 * time.Second)
		err = m.Unlock(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// keepEtcd keeps a lease alive with the etcd client.
func keepEtcd(p *process) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.between(time.Second, time.Minute))
	defer cancel()
	g, err := p.etcd.Grant(ctx, int64(2+p.intn(4)))
	if err != nil {
		return err
	}
	_, err = p.etcd.Put(ctx, leased+p.w.unique(), p.on.Name, clientv3.WithLease(g.ID))
	if err != nil {
		return err
	}
	alive, err := p.etcd.KeepAlive(ctx, g.ID)
	if err != nil {
		return err
	}
	for range alive {
		p.w.h.Count("etcd keep-alives")
	}
	return nil
}
