package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/members"
	"leasehold.dev/client/store"
)

// driver is a client and the objects that the suite has created with it.
type driver struct {
	jump atomic.Int64 // offset of the clock in nanoseconds

	mu     sync.Mutex // guards the following fields
	client *client.Client
	call   time.Duration
	things map[string]any
}

func (d *driver) thing(name string) any {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.things[name]
}

func (d *driver) keep(name string, thing any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.things[name] = thing
}

func (d *driver) c() *client.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.client
}

func (d *driver) hold(name string) (client.Hold, error) {
	if h, ok := d.thing(name).(client.Hold); ok {
		return h, nil
	}
	return nil, fmt.Errorf("no hold is named %s", name)
}

// live returns the session with the given name.
func (d *driver) live(name string) (*client.Session, error) {
	if s, ok := d.thing(name).(*client.Session); ok {
		return s, nil
	}
	return nil, fmt.Errorf("no session is named %s", name)
}

type operation func(d *driver, ctx context.Context, a args) (object, error)

var operations map[string]operation

func init() {
	operations = map[string]operation{
		"reset": (*driver).reset, "connect": (*driver).connect, "clock": (*driver).clock,
		"busy": (*driver).busy, "put": (*driver).put, "get": (*driver).get,
		"range": (*driver).readRange, "delete": (*driver).delete, "txn": (*driver).txn,
		"watch": (*driver).watch, "unwatch": (*driver).unwatch, "next": (*driver).next,
		"grant": (*driver).grant, "renew": (*driver).renew, "revoke": (*driver).revoke,
		"describe": (*driver).describe, "leases": (*driver).leases,
		"check_token": (*driver).checkToken, "session": (*driver).session,
		"check": (*driver).check, "wait_ended": (*driver).waitEnded, "release": (*driver).release,
		"run": (*driver).run, "runs": (*driver).runs, "stop_run": (*driver).stopRun,
		"lock": (*driver).lock, "campaign": (*driver).campaign, "proclaim": (*driver).proclaim,
		"leader": (*driver).leader, "observe": (*driver).observe, "register": (*driver).register,
		"update": (*driver).update, "members": (*driver).members,
	}
}

// reset closes everything.
func (d *driver) reset(ctx context.Context, _ args) (object, error) {
	d.mu.Lock()
	c, things := d.client, d.things
	d.client, d.things, d.call = nil, map[string]any{}, 0
	d.mu.Unlock()
	d.jump.Store(0)
	for _, x := range things {
		switch x := x.(type) {
		case *client.Session:
			_ = x.Release(ctx) // it may already have ended
		case *runs:
			x.stop()
		case *changes:
			x.stop()
		}
	}
	if c != nil {
		return nil, c.Close()
	}
	return nil, nil
}

func (d *driver) connect(ctx context.Context, a args) (object, error) {
	if _, err := d.reset(ctx, nil); err != nil {
		return nil, err
	}
	list, _ := a["endpoints"].([]any)
	cfg := client.Config{
		User: a.text("user"), Password: a.text("password"), Token: a.text("token"),
		Now: func() time.Time { return time.Now().Add(time.Duration(d.jump.Load())) },
	}
	for _, e := range list {
		cfg.Endpoints = append(cfg.Endpoints, fmt.Sprint(e))
	}
	if a.has("ca") {
		cfg.TLS, cfg.RootCAFile = &tls.Config{}, a.text("ca")
	}
	c, err := client.New(cfg)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client, d.call = c, a.ms("call_ms")
	return nil, nil
}

// clock makes the client's clock jump.
func (d *driver) clock(_ context.Context, a args) (object, error) {
	d.jump.Add(int64(a.ms("jump_ms")))
	return nil, nil
}

// busy only sleeps, because in Go no goroutine can keep the others from running.
func (d *driver) busy(_ context.Context, a args) (object, error) {
	time.Sleep(a.ms("ms"))
	return nil, nil
}

func (d *driver) put(ctx context.Context, a args) (object, error) {
	r, err := d.c().Put(ctx, a.put())
	return object{"revision": r.Revision, "prev": plainKV(r.Prev)}, err
}

func (d *driver) get(ctx context.Context, a args) (object, error) {
	kv, err := d.c().Get(ctx, a.text("key"))
	if errors.Is(err, client.ErrKeyNotFound) {
		return object{"kv": nil}, nil
	}
	return object{"kv": plainKV(&kv)}, err
}

func (d *driver) readRange(ctx context.Context, a args) (object, error) {
	r, err := d.c().Range(ctx, a.rangeOf())
	return plainRange(&r), err
}

func (d *driver) delete(ctx context.Context, a args) (object, error) {
	r, err := d.c().Delete(ctx, a.delete())
	return plainDelete(&r), err
}

func (d *driver) txn(ctx context.Context, a args) (object, error) {
	r, err := d.c().Txn(ctx, d.transaction(a))
	return plainTxn(&r), err
}

func (d *driver) watch(ctx context.Context, a args) (object, error) {
	k := a.keys()
	w, err := d.c().Watch(ctx, store.Watch{
		Key: k.Key, End: k.End, From: a.number("from"), PrevKV: a.is("prev"),
		NoPut: a.is("no_put"), NoDelete: a.is("no_delete"),
	})
	if err == nil {
		d.keep(a.text("as"), &watch{Watcher: w})
	}
	return nil, err
}

// watch splits updates so that their revisions are delivered one at a time.
type watch struct {
	*client.Watcher
	rest []store.Event
}

func (w *watch) next(ctx context.Context) (store.Update, error) {
	if len(w.rest) == 0 {
		u, err := w.Next(ctx)
		if err != nil {
			return u, err
		}
		w.rest = u.Events
	}
	revision, n := w.rest[0].KV.ModRevision, 0
	for n < len(w.rest) && w.rest[n].KV.ModRevision == revision {
		n++
	}
	u := store.Update{Revision: revision, Events: w.rest[:n]}
	w.rest = w.rest[n:]
	return u, nil
}

func (d *driver) unwatch(_ context.Context, a args) (object, error) {
	d.thing(a.text("of")).(*watch).Close()
	return nil, nil
}

func (d *driver) next(ctx context.Context, a args) (object, error) {
	switch x := d.thing(a.text("of")).(type) {
	case *watch:
		u, err := x.next(ctx)
		return plainUpdate(u), err
	case *changes:
		l, err, _ := x.next()
		return object{"leader": plainLeader(l)}, err
	}
	return nil, errors.New("no object has that name")
}

func (d *driver) grant(ctx context.Context, a args) (object, error) {
	g, err := d.c().GrantOnly(ctx, a.grant())
	if err != nil {
		return nil, err
	}
	return plainLease(&g.Info), nil
}

func (d *driver) renew(ctx context.Context, a args) (object, error) {
	r, err := d.c().Txn(ctx, store.Txn{Then: []store.Op{a.ref().Renew()}})
	if err != nil {
		return nil, err
	}
	return object{"ttl_ms": r.Results[0].Renew.TTL.Milliseconds()}, nil
}

func (d *driver) revoke(ctx context.Context, a args) (object, error) {
	return nil, d.c().Revoke(ctx, a.ref())
}

func (d *driver) describe(ctx context.Context, a args) (object, error) {
	i, err := d.c().DescribeKeys(ctx, a.ref())
	return plainLease(&i), err
}

func (d *driver) leases(ctx context.Context, a args) (object, error) {
	list := []any{}
	f := leases.Filter{NamePrefix: a.text("prefix"), Owner: a.text("owner")}
	for i, err := range d.c().List(ctx, f) {
		if err != nil {
			return nil, err
		}
		list = append(list, plainLease(&i))
	}
	return object{"leases": list}, nil
}

func (d *driver) checkToken(ctx context.Context, a args) (object, error) {
	valid, _, err := d.c().CheckLease(ctx, a.ref())
	return object{"valid": valid}, err
}

func (d *driver) session(ctx context.Context, a args) (object, error) {
	l, err := d.c().Grant(ctx, a.grant())
	if err != nil {
		return nil, err
	}
	s := l.Session()
	d.keep(a.text("as"), s)
	out := d.held(s)
	out["lease"] = l.ID()
	return out, nil
}

// held describes a hold.
func (d *driver) held(h client.Hold) object {
	left := time.Until(h.ValidUntil()) - time.Duration(d.jump.Load())
	out := object{"token": h.Token(), "valid_ms": float64(left) / 1e6}
	if l, ok := h.(interface {
		Key() string
		Revision() int64
	}); ok {
		out["key"], out["revision"] = l.Key(), l.Revision()
	}
	return out
}

func (d *driver) check(_ context.Context, a args) (object, error) {
	h, err := d.hold(a.text("of"))
	if err == nil {
		err = h.Err()
	}
	if err != nil {
		return nil, err
	}
	return d.held(h), nil
}

func (d *driver) waitEnded(ctx context.Context, a args) (object, error) {
	h, err := d.hold(a.text("of"))
	if err != nil {
		return nil, err
	}
	select {
	case <-h.Context().Done():
		err := h.Err()
		return object{"code": codeOf(err), "message": err.Error()}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (d *driver) release(ctx context.Context, a args) (object, error) {
	h, err := d.hold(a.text("of"))
	if err != nil {
		return nil, err
	}
	return nil, h.Release(ctx)
}

// runs holds the sessions of a program that starts a new session after each loss.
type runs struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex // guards the following fields
	starts  []*client.Session
	changed chan struct{}
}

func (r *runs) stop() {
	r.cancel()
	<-r.done
}

func (d *driver) run(_ context.Context, a args) (object, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &runs{cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	d.keep(a.text("as"), r)
	c := d.c()
	work := func(ctx context.Context, s *client.Session) error { return r.work(ctx, s, a) }
	go func() {
		defer close(r.done)
		_ = c.Run(ctx, client.Grant{TTL: a.ms("ttl_ms")}, work) // it returns once stop is called
	}()
	return nil, nil
}

// work runs in each session until the session is lost.
func (r *runs) work(ctx context.Context, s *client.Session, a args) error {
	if a.has("register") {
		r.mu.Lock()
		n := len(r.starts) + 1
		r.mu.Unlock()
		group := members.New(s.Client(), a.text("register"))
		if _, err := group.Register(ctx, s, a.text("id"), fmt.Append(nil, n)); err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.starts = append(r.starts, s)
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-s.Context().Done():
	}
	return nil
}

func (d *driver) runs(ctx context.Context, a args) (object, error) {
	r := d.thing(a.text("of")).(*runs)
	for {
		r.mu.Lock()
		starts, changed := r.starts, r.changed
		r.mu.Unlock()
		if n := int(a.number("n")); len(starts) >= n {
			return object{"lease": starts[n-1].Lease().ID(), "token": starts[n-1].Token()}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *driver) stopRun(_ context.Context, a args) (object, error) {
	d.thing(a.text("of")).(*runs).stop()
	return nil, nil
}

func (d *driver) lock(ctx context.Context, a args) (object, error) {
	s, err := d.live(a.text("session"))
	if err != nil {
		return nil, err
	}
	m := lock.NewMutex(s, a.text("name"))
	lockIt := m.Lock
	switch {
	case a.is("try"):
		lockIt = m.TryLock
	case a.has("wait_ms"):
		lockIt = func(ctx context.Context) (*lock.Held, error) {
			return m.LockWithin(ctx, a.ms("wait_ms"))
		}
	}
	h, err := lockIt(ctx)
	if err != nil {
		return nil, err
	}
	d.keep(a.text("as"), h)
	return d.held(h), nil
}

func (d *driver) campaign(ctx context.Context, a args) (object, error) {
	s, err := d.live(a.text("session"))
	if err != nil {
		return nil, err
	}
	l, err := lock.NewElection(d.c(), a.text("name")).Campaign(ctx, s,
		lock.Candidate{Value: []byte(a.text("value"))})
	if err != nil {
		return nil, err
	}
	d.keep(a.text("as"), l)
	return d.held(l), nil
}

func (d *driver) proclaim(ctx context.Context, a args) (object, error) {
	return nil, d.thing(a.text("of")).(*lock.Leading).Proclaim(ctx, []byte(a.text("value")))
}

func (d *driver) leader(ctx context.Context, a args) (object, error) {
	l, err := lock.NewElection(d.c(), a.text("name")).Leader(ctx)
	return object{"leader": plainLeader(l)}, err
}

// changes delivers the leader changes of an election.
type changes struct {
	next func() (lock.LeaderInfo, error, bool)
	stop func()
}

func (d *driver) observe(_ context.Context, a args) (object, error) {
	ctx, cancel := context.WithCancel(context.Background())
	next, stop := iter.Pull2(lock.NewElection(d.c(), a.text("name")).Observe(ctx))
	d.keep(a.text("as"), &changes{next, func() { cancel(); stop() }})
	return nil, nil
}

func (d *driver) register(ctx context.Context, a args) (object, error) {
	s, err := d.live(a.text("session"))
	if err != nil {
		return nil, err
	}
	group := members.New(d.c(), a.text("group"))
	register := group.TryRegister
	if a.is("wait") {
		register = group.Register
	}
	m, err := register(ctx, s, a.text("id"), []byte(a.text("metadata")))
	if err != nil {
		return nil, err
	}
	d.keep(a.text("as"), m)
	return d.held(m), nil
}

func (d *driver) update(ctx context.Context, a args) (object, error) {
	return nil, d.thing(a.text("of")).(*members.Membership).Update(ctx, []byte(a.text("metadata")))
}

func (d *driver) members(ctx context.Context, a args) (object, error) {
	list, _, err := members.New(d.c(), a.text("group")).List(ctx)
	out := []any{}
	for _, m := range list {
		out = append(out, object{
			"id": m.ID, "metadata": string(m.Metadata), "lease": m.Lease, "joined": m.Joined,
		})
	}
	return object{"members": out}, err
}
