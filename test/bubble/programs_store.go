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
	"leasehold.dev/test/history"
)

// epoch is how long each register remains in use. It is short because searching for a linearization
// takes longer with more operations.
const epoch = time.Minute

const registers = "r/"

// register returns a random register of the current epoch.
func (p *process) register() string {
	return fmt.Sprintf("%s%d/%d", registers, p.w.h.Now()/epoch, p.intn(3))
}

func outcomeOf(err error) history.Outcome {
	switch {
	case err == nil:
		return history.Done
	case errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrUnknownOutcome):
		return history.Failed
	default:
		return history.Unknown
	}
}

// storeKeys reads and writes registers with the leasehold.v1 client.
func storeKeys(p *process) error {
	ctx, cancel := p.within(20 * time.Second)
	defer cancel()
	o := &history.Op{By: p.on.Name, Key: p.register()}
	var err error
	switch k := p.intn(10); {
	case k < 4:
		p.w.h.Call(o)
		var kv store.KV
		if kv, err = p.c.Get(ctx, o.Key); errors.Is(err, client.ErrKeyNotFound) {
			err = nil
		}
		o.Got = string(kv.Value)
	case k < 7:
		o.Kind, o.Value = history.Put, p.w.unique()
		p.w.h.Call(o)
		var r store.PutResult
		r, err = p.c.Put(ctx, store.Put{Key: o.Key, Value: []byte(o.Value)})
		o.Revision = r.Revision
	case k < 9:
		err = p.swap(ctx, o)
	default:
		o.Kind = history.Delete
		p.w.h.Call(o)
		_, err = p.c.Delete(ctx, store.Delete{Key: o.Key})
	}
	p.w.h.Return(o, outcomeOf(err))
	return err
}

// swap reads a register and replaces its value.
func (p *process) swap(ctx context.Context, o *history.Op) error {
	kv, err := p.c.Get(ctx, o.Key)
	if err != nil && !errors.Is(err, client.ErrKeyNotFound) {
		o.Key = ""
		p.w.h.Call(o)
		return err
	}
	o.Kind, o.Want, o.Value = history.Swap, string(kv.Value), p.w.unique()
	p.w.h.Call(o)
	cond := store.Key(o.Key).Missing()
	if o.Want != "" {
		cond = store.Key(o.Key).Value(store.Equal, kv.Value)
	}
	r, err := p.c.Txn(ctx, store.Txn{
		If:   []store.Compare{cond},
		Then: []store.Op{store.Put{Key: o.Key, Value: []byte(o.Value)}},
		Else: []store.Op{store.Range{Key: o.Key}},
	})
	if err != nil {
		return err
	}
	if o.Swapped = r.Succeeded; o.Swapped {
		o.Revision = r.Revision
	} else if kvs := r.Results[0].Range.KVs; len(kvs) > 0 {
		o.Got = string(kvs[0].Value)
	}
	return nil
}

// storeEtcd reads and writes the same registers with the etcd client.
func storeEtcd(p *process) error {
	ctx, cancel := p.within(20 * time.Second)
	defer cancel()
	o := &history.Op{By: p.on.Name + "/etcd", Key: p.register()}
	var err error
	if p.intn(2) == 0 {
		p.w.h.Call(o)
		var r *clientv3.GetResponse
		if r, err = p.etcd.Get(ctx, o.Key); err == nil && len(r.Kvs) > 0 {
			o.Got = string(r.Kvs[0].Value)
		}
	} else {
		o.Kind, o.Value = history.Put, p.w.unique()
		p.w.h.Call(o)
		var r *clientv3.PutResponse
		if r, err = p.etcd.Put(ctx, o.Key, o.Value); err == nil {
			o.Revision = r.Header.Revision
		}
	}
	f := history.Done
	if err != nil {
		f = history.Unknown
	}
	p.w.h.Return(o, f)
	return err
}

// cached reads the registers through a coherent cache.
func cached(p *process) error {
	c, err := cache.Open(p.ctx, p.c, []store.KeyRange{store.Prefix(registers)}, cache.Options{
		TTL: p.between(time.Second, 5*time.Second),
	})
	if err != nil {
		return err
	}
	until := p.w.h.Now() + p.between(10*time.Second, 5*time.Minute)
	for p.ctx.Err() == nil && p.w.h.Now() < until {
		ctx, cancel := p.within(10 * time.Second)
		o := p.w.h.Call(&history.Op{By: p.on.Name + "/cache", Key: p.register()})
		kv, err := c.Get(ctx, o.Key)
		o.Got = string(kv.Value)
		p.w.h.Return(o, outcomeOf(err))
		p.w.h.Count("cached reads")
		cancel()
		p.sleep(time.Millisecond, p.w.pace/2)
	}
	ctx, cancel := p.within(10 * time.Second)
	defer cancel()
	return c.Close(ctx)
}

// watch watches all registers and sometimes resumes with a new watch.
func watch(p *process) error {
	v := history.NewWatch(p.on.Name)
	w, err := p.c.Watch(p.ctx, store.Watch{
		Key: registers, End: store.Prefix(registers).End, Progress: time.Second,
	})
	if err != nil {
		return err
	}
	defer w.Close()
	until := p.w.h.Now() + p.between(10*time.Second, 5*time.Minute)
	for p.w.h.Now() < until {
		u, err := w.Next(p.ctx)
		if err != nil {
			break
		}
		var changes []history.Change
		for _, e := range u.Events {
			changes = append(changes, history.Change{
				Key: e.KV.Key, Value: string(e.KV.Value), Delete: e.Delete, Revision: e.KV.ModRevision,
			})
		}
		p.w.h.Observe(v, u.Revision, changes)
	}
	return nil
}
