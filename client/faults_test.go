package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
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

// TestCount checks that each of a thousand writes takes effect once and gets its own response while
// responses are lost, streams break and members shut down.
func TestCount(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		c := connect(t, client.Config{}, members...)
		ctx := ask(t)
		const workers, each = 8, 125
		found := make(chan int64, workers)
		for range workers {
			go func() {
				for range each {
					r, err := c.Txn(ctx, store.Txn{Then: []store.Op{store.Put{Key: "k", PrevKV: true}}})
					if err != nil {
						t.Error(err)
						found <- -1
						return
					}
					found <- versionOf(r.Results[0].Put.Prev)
				}
			}()
		}
		seen := make(map[int64]bool)
		for n := range workers * each {
			v := <-found
			if v < 0 {
				return
			}
			if seen[v] {
				t.Errorf("two writes found version %d", v)
			}
			seen[v] = true
			harass(members, n, 300)
		}
		if kv := must[store.KV](t)(c.Get(ctx, "k")); kv.Version != workers*each {
			t.Errorf("version %d after %d writes", kv.Version, workers*each)
		}
	})
}

// harass is called after each of many calls. It regularly breaks a stream so that the response to a
// call is lost. Less often it restarts a member.
func harass(members []*member, n, every int) {
	if n%20 == 0 {
		for _, m := range members {
			if m.Busy() {
				m.Lose(1)
			}
		}
	}
	if m := members[n/every%3]; n%every == every/2 {
		m.End()
		m.Start()
	}
}

// TestCountLeases checks that hand-overs, resumptions, attachments and detachments take effect once
// and get their own responses while responses are lost and members shut down.
func TestCountLeases(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		c := connect(t, client.Config{}, members...)
		ctx := ask(t)
		const each = 100
		l := must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: time.Minute, Resumable: true}))
		other := must[*client.Granted](t)(c.GrantOnly(ctx, client.Grant{TTL: time.Hour}))
		must[store.PutResult](t)(c.Put(ctx, store.Put{Key: "k"}))
		id, given, done := l.ID(), uint64(other.Token), make(chan error, 2*each)
		go func() {
			for range each {
				held, err := next(ctx, c, l)
				if given++; err == nil && uint64(held.Token()) != given {
					err = fmt.Errorf("token %d, not %d", held.Token(), given)
				}
				if done <- err; err != nil {
					return
				}
				l = held
			}
		}()
		go func() {
			for i := range each {
				call := c.Attach
				if i%2 > 0 {
					call = c.Detach
				}
				done <- call(ctx, leases.Ref{ID: other.ID, Token: other.Token}, "k")
			}
		}()
		for n := range 2 * each {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			harass(members, n, 100)
		}
		if kv := must[store.KV](t)(c.Get(ctx, "k")); kv.Version != 1+each || kv.Lease != 0 {
			t.Errorf("lease %d, version %d after %d calls", kv.Lease, kv.Version, each)
		}
		if got := must[leases.Info](t)(c.Describe(ctx, leases.Ref{ID: id})); uint64(
			got.Token) != given {
			t.Errorf("token %d after %d", got.Token, given)
		}
	})
}

// next transfers the client's lease to the client itself. It uses the secret. If a lost response
// contained the secret, it uses a hand-over instead, which returns a new one.
func next(ctx context.Context, c *client.Client, l *client.Lease) (*client.Lease, error) {
	if len(l.Secret()) > 0 {
		return c.Resume(ctx, leases.Ref{ID: l.ID()}, l.Secret(), 0)
	}
	g, err := l.HandOverResumable(ctx, "me")
	if err != nil {
		return nil, err
	}
	return c.Keep(g, 0)
}

// versionOf returns the version of a key, or 0 if the key does not exist.
func versionOf(kv *store.KV) int64 {
	if kv == nil {
		return 0
	}
	return kv.Version
}

// TestConcurrentHolders checks that of several clients competing for a name, only one has it at any
// time, and that each holder has a higher token than the previous one.
func TestConcurrentHolders(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
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
	})
}

// take grants the name to a client as soon as the previous lease has ended.
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
