package bubble

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
)

// epoch is how long a register is in use: the search for an order of its operations takes the
// longer the more there are.
const epoch = time.Minute

const registers = "r/"

// register draws one of those in use.
func (p *process) register() string {
	return fmt.Sprintf("%s%d/%d", registers, p.w.h.now()/epoch, p.intn(3))
}

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return done
	case errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrUnknownOutcome):
		return failed
	default:
		return unknown
	}
}

// store reads and writes registers by the client of leasehold.v1.
func storeKeys(p *process) error {
	ctx, cancel := p.within(20 * time.Second)
	defer cancel()
	o := &op{by: p.on.Name, key: p.register()}
	var err error
	switch k := p.intn(10); {
	case k < 4:
		p.w.h.call(o)
		var kv store.KV
		if kv, err = p.c.Get(ctx, o.key); errors.Is(err, client.ErrKeyNotFound) {
			err = nil
		}
		o.got = string(kv.Value)
	case k < 7:
		o.kind, o.value = opPut, p.w.unique()
		p.w.h.call(o)
		var r store.PutResult
		r, err = p.c.Put(ctx, store.Put{Key: o.key, Value: []byte(o.value)})
		o.revision = r.Revision
	case k < 9:
		err = p.swap(ctx, o)
	default:
		o.kind = opDelete
		p.w.h.call(o)
		_, err = p.c.Delete(ctx, store.Delete{Key: o.key})
	}
	p.w.h.back(o, outcomeOf(err))
	return err
}

// swap reads a register and puts another value in its place.
func (p *process) swap(ctx context.Context, o *op) error {
	kv, err := p.c.Get(ctx, o.key)
	if err != nil && !errors.Is(err, client.ErrKeyNotFound) {
		o.key = ""
		p.w.h.call(o)
		return err
	}
	o.kind, o.want, o.value = opSwap, string(kv.Value), p.w.unique()
	p.w.h.call(o)
	cond := store.Key(o.key).Missing()
	if o.want != "" {
		cond = store.Key(o.key).Value(store.Equal, kv.Value)
	}
	r, err := p.c.Txn(ctx, store.Txn{
		If:   []store.Compare{cond},
		Then: []store.Op{store.Put{Key: o.key, Value: []byte(o.value)}},
		Else: []store.Op{store.Range{Key: o.key}},
	})
	if err != nil {
		return err
	}
	if o.swapped = r.Succeeded; o.swapped {
		o.revision = r.Revision
	} else if kvs := r.Results[0].Range.KVs; len(kvs) > 0 {
		o.got = string(kvs[0].Value)
	}
	return nil
}

// storeEtcd reads and writes the same registers by etcd's client.
func storeEtcd(p *process) error {
	ctx, cancel := p.within(20 * time.Second)
	defer cancel()
	o := &op{by: p.on.Name + "/etcd", key: p.register()}
	var err error
	if p.intn(2) == 0 {
		p.w.h.call(o)
		var r *clientv3.GetResponse
		if r, err = p.etcd.Get(ctx, o.key); err == nil && len(r.Kvs) > 0 {
			o.got = string(r.Kvs[0].Value)
		}
	} else {
		o.kind, o.value = opPut, p.w.unique()
		p.w.h.call(o)
		var r *clientv3.PutResponse
		if r, err = p.etcd.Put(ctx, o.key, o.value); err == nil {
			o.revision = r.Header.Revision
		}
	}
	f := done
	if err != nil {
		f = unknown
	}
	p.w.h.back(o, f)
	return err
}

// cached reads the registers from a coherent cache.
func cached(p *process) error {
	c, err := cache.Open(p.ctx, p.c, []store.KeyRange{store.Prefix(registers)}, cache.Options{
		TTL: p.between(time.Second, 5*time.Second),
	})
	if err != nil {
		return err
	}
	until := p.w.h.now() + p.between(10*time.Second, 5*time.Minute)
	for p.ctx.Err() == nil && p.w.h.now() < until {
		ctx, cancel := p.within(10 * time.Second)
		o := p.w.h.call(&op{by: p.on.Name + "/cache", key: p.register()})
		kv, _, err := c.Get(ctx, o.key)
		o.got = string(kv.Value)
		p.w.h.back(o, outcomeOf(err))
		p.w.h.count("cached reads")
		cancel()
		p.sleep(time.Millisecond, p.w.pace/2)
	}
	ctx, cancel := p.within(10 * time.Second)
	defer cancel()
	return c.Close(ctx)
}

// watch follows all registers, and goes on where it was in a new watch now and then.
func watch(p *process) error {
	v := &view{by: p.on.Name, told: make(map[int64]string)}
	w, err := p.c.Watch(p.ctx, store.Watch{
		Key: registers, End: store.Prefix(registers).End, Progress: time.Second,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	until := p.w.h.now() + p.between(10*time.Second, 5*time.Minute)
	for p.w.h.now() < until {
		u, err := w.Next(p.ctx)
		if err != nil {
			break
		}
		p.w.h.see(v, &u)
	}
	return nil
}

// see notes what a watch was told.
func (h *history) see(v *view, u *store.Update) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.last == 0 { // it began somewhere before
		h.views = append(h.views, v)
		v.last, v.first = u.Revision, u.Revision+1
		if len(u.Events) > 0 {
			v.last = u.Events[0].KV.ModRevision - 1
			v.first = v.last + 1
		}
	}
	for _, e := range u.Events {
		at := e.KV.ModRevision
		if at <= v.last || at > u.Revision {
			h.violateLocked("W1", "the watch of %s was told of revision %d after %d, with %d",
				v.by, at, v.last, u.Revision)
		}
		v.told[at] += told(e.Delete, e.KV.Key, string(e.KV.Value))
		h.counts["events"]++
	}
	v.last = max(v.last, u.Revision)
}
