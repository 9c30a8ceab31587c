package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"leasehold.dev/client"
)

// follower is a program whose watch must see each version of one key, once and in order.
type follower struct {
	t    *testing.T
	w    *client.Watcher
	seen chan int64 // versions
}

// run follows until the watch is closed. Only a gap or a repetition is an error.
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

// TestFaults: one after the other the member that the client is connected to is stopped as by
// SIGSTOP, cut off, and shut down. Leases live on, writes go on, and a watch loses nothing
// and repeats nothing.
func TestFaults(t *testing.T) {
	members := newCluster(t, 3)
	c := connect(t, client.Config{}, members...)
	ctx := ask(t)
	l := must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: 6 * time.Second, Name: "n"}))
	w := must[*client.Watcher](t)(c.Watch(ctx, client.Watch{Key: "k"}))
	f := &follower{t: t, w: w, seen: make(chan int64, 1000)}
	go f.run(ctx)
	// write writes until one write has succeeded, and its event has come. What came to nothing
	// known may or may not have made a version.
	write := func() {
		for {
			_, err := c.Put(ctx, client.Put{Key: "k", Lease: l.ID()})
			if err == nil {
				break
			}
			if !errors.Is(err, client.ErrUnknownOutcome) {
				t.Fatal(err)
			}
		}
		kv := must[client.KV](t)(c.Get(ctx, "k"))
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
			func(m *member) { m.frozen.Store(true) },
			func(m *member) { m.frozen.Store(false) },
		},
		{
			"cut off",
			func(m *member) { m.setCut(true) },
			func(m *member) { m.setCut(false) },
		},
		{"shut down", (*member).end, func(m *member) { m.start(); m.await() }},
	} {
		write()
		var m *member
		eventually(t, "the client is with one member", func() bool {
			n := 0
			for _, x := range members {
				if x.busy() {
					m = x
					n++
				}
			}
			return n == 1
		})
		fault.harm(m)
		write()
		renewed(t, l)
		if m.busy() && i > 0 {
			t.Errorf("%s: still connected to %s", fault.name, m.cfg.Name)
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
}

// TestConcurrentHolders: of many clients that want one name one has it at a time, each with a
// higher token. A holder tells twice of itself, and nobody may come in between.
func TestConcurrentHolders(t *testing.T) {
	members := newCluster(t, 3)
	ctx := ask(t)
	const clients, rounds = 4, 5
	type turn struct {
		who   int
		token uint64
	}
	turns := make(chan turn)
	for i := range clients {
		c := connect(t, client.Config{}, members...)
		go func() {
			for range rounds {
				l := take(ctx, t, c, fmt.Sprint(i))
				if l == nil {
					break
				}
				turns <- turn{i, uint64(l.Token())}
				turns <- turn{i, uint64(l.Token())}
				if err := l.Revoke(ctx); err != nil {
					t.Error(err)
				}
			}
			turns <- turn{who: -1}
		}()
	}
	last := uint64(0)
	for done := 0; done < clients; {
		a := <-turns
		if a.who < 0 {
			done++
			continue
		}
		b := <-turns
		for b.who < 0 {
			done++
			b = <-turns
		}
		if b != a || a.token <= last {
			t.Errorf("%+v and %+v hold the name, after token %d", a, b, last)
		}
		last = a.token
	}
}

// take grants the name to a client, when nobody has it any more.
func take(ctx context.Context, t *testing.T, c *client.Client, owner string) *client.Lease {
	for {
		l, err := c.Grant(ctx, client.Grant{TTL: time.Minute, Name: "one", Owner: owner})
		if err == nil {
			return l
		}
		if !errors.Is(err, client.ErrNameTaken) {
			t.Error(err)
			return nil
		}
	}
}
