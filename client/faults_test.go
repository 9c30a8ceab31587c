package client_test

import (
	"context"
	"errors"
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/store"
	"leasehold.dev/test/inprocess"
)

// follower is a program with a watch that must receive each version of one key once and in order.
type follower struct {
	t    *testing.T
	w    *client.Watcher
	seen chan int64 // versions
}

// run receives events until the watch is closed. Only a gap or a repetition is an error.
func (f *follower) run(ctx context.Context) {
	defer close(f.seen)
	last := int64(0)
	for {
		u, err := f.w.Next(ctx)
		if err != nil {
			if !errors.Is(err, client.ErrClosed) {
				f.t.Errorf("the watch has ended: %v", err)
			}
			return
		}
		for _, e := range u.Events {
			if e.KV.Version != last+1 {
				f.t.Errorf("version %d after %d", e.KV.Version, last)
			}
			last = e.KV.Version
			f.seen <- last
		}
	}
}

// TestFaults stops, cuts off and shuts down the member that the client is connected to. It checks
// that leases survive, that writes continue, and that a watch neither loses nor repeats events.
func TestFaults(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		c := connect(t, steady, members...)
		ctx := ask(t)
		l := must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: steadyTTL, Name: "n"}))
		w := must[*client.Watcher](t)(c.Watch(ctx, store.Watch{Key: "k"}))
		f := &follower{t: t, w: w, seen: make(chan int64, 1000)}
		go f.run(ctx)
		// write puts a key and waits for the event.
		write := func() {
			if _, err := c.Put(ctx, store.Put{Key: "k", Lease: l.ID()}); err != nil {
				t.Fatal(err)
			}
			kv := must[store.KV](t)(c.Get(ctx, "k"))
			for v := range f.seen {
				if v == kv.Version {
					return
				}
			}
			t.Fatal("the watch has ended")
		}
		for i, fault := range []struct {
			name       string
			harm, heal func(*member)
		}{
			{
				"stopped",
				func(m *member) { m.SetFrozen(true) },
				func(m *member) { m.SetFrozen(false) },
			},
			{
				"cut off",
				func(m *member) { m.SetCut(true) },
				func(m *member) { m.SetCut(false) },
			},
			{
				"shut down",
				func(m *member) { m.End() },
				func(m *member) { m.Start(); m.Await() },
			},
		} {
			write()
			var m *member
			eventually(t, "the client is with one member", func() bool {
				n := 0
				for _, x := range members {
					if x.Busy() {
						m = x
						n++
					}
				}
				return n == 1
			})
			fault.harm(m)
			write()
			renewed(t, l)
			if m.Busy() && i > 0 {
				t.Errorf("%s: still connected to %s", fault.name, m.Name())
			}
			fault.heal(m)
		}
		w.Close()
		for v := range f.seen {
			t.Errorf("one more event, of version %d", v)
		}
		if err := l.Revoke(ctx); err != nil {
			t.Error(err)
		}
	})
}
