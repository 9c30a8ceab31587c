package client_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
)

func hexOf(id lease.ID) string { return strconv.FormatInt(int64(id), 16) }

// TestTicketsFaults: with the members stopped, cut off, and with answers lost, two clients, each
// through another member, wait in one queue: each turn comes, and of what goes both are told.
func TestTicketsFaults(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		ctx := ask(t)
		a := connect(t, client.Config{}, members[0], members[1])
		b := connect(t, client.Config{}, members[2], members[1])
		grant := func(c *client.Client) *client.Lease {
			return must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: 20 * time.Second}))
		}
		key := func(l *client.Lease) string { return "tickets/" + hexOf(l.ID()) }
		enter := func(c *client.Client, l *client.Lease) *client.Ticket {
			t.Helper()
			r, w, err := c.Enter(ctx, store.Txn{
				If:   []store.Compare{store.Key(key(l)).Missing()},
				Then: []store.Op{store.Put{Key: key(l), Lease: l.ID()}},
			}, store.Wait{Key: key(l), Prefix: "tickets/"})
			if err != nil || w == nil || w.Revision() != r.Revision {
				t.Fatalf("%+v, %v, %v", r, w, err)
			}
			return w
		}
		remove := func(w *client.Ticket, l *client.Lease) {
			t.Helper()
			r, err := w.Leave(ctx, store.Txn{
				If:   []store.Compare{store.Key(key(l)).CreateRevision(store.Equal, w.Revision())},
				Then: []store.Op{store.Delete{Key: key(l)}},
			})
			if err != nil || !r.Succeeded {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		la, lb := grant(a), grant(b)
		faults := []func(*member){
			func(*member) {}, func(m *member) { m.Break() },
			func(m *member) { m.SetCut(true) }, func(m *member) { m.SetFrozen(true) },
		}
		for i, fault := range faults {
			first := enter(a, la)
			if err := first.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			members[2].Lose(1) // the answer to b's entering, or to what comes next
			second := enter(b, lb)
			fault(members[2])
			remove(first, la)
			if err := second.Wait(ctx); err != nil {
				t.Fatalf("fault %d: %v", i, err)
			}
			again := enter(a, la)
			if _, err := a.Delete(ctx, store.Delete{Key: key(lb)}); err != nil {
				t.Fatal(err)
			}
			<-second.Context().Done()
			var gone *client.GoneError
			if !errors.As(second.Wait(ctx), &gone) {
				t.Fatalf("fault %d: %v", i, second.Wait(ctx))
			}
			second.Close()
			if err := again.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			remove(again, la)
			members[2].SetCut(false)
			members[2].SetFrozen(false)
		}
	})
}

// TestTicketExpires: a waiter is told that its lease took its key along, and why; the waiters
// behind it do not take that for their turn.
func TestTicketExpires(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := ask(t)
		c := connect(t, client.Config{}, members...)
		var tickets []*client.Ticket
		var leases []*client.Granted
		for i := range 3 {
			ttl := time.Minute
			if i == 1 {
				ttl = 4 * time.Second
			}
			g := must[*client.Granted](t)(c.GrantOnly(ctx, client.Grant{TTL: ttl})) // nobody renews it
			key := "expires/" + hexOf(g.ID)
			_, w, err := c.Enter(ctx, store.Txn{
				Then: []store.Op{store.Put{Key: key, Lease: g.ID}},
			}, store.Wait{Key: key, Prefix: "expires/"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			tickets, leases = append(tickets, w), append(leases, g)
		}
		<-tickets[1].Context().Done()
		var gone *client.GoneError
		if !errors.As(tickets[1].Wait(ctx), &gone) || gone.Cause != store.Expired ||
			gone.Lease != leases[1].ID {
			t.Errorf("who expired: %v", tickets[1].Wait(ctx))
		}
		select {
		case <-tickets[2].Ready():
			t.Error("it is the turn of who is behind him")
		default:
		}
		if err := tickets[0].Wait(ctx); err != nil {
			t.Error(err)
		}
		if _, err := c.Delete(ctx, store.Delete{Key: "expires/" + hexOf(leases[0].ID)}); err != nil {
			t.Error(err)
		}
		after := "expires/" + hexOf(leases[0].ID)
		if err := tickets[2].Wait(ctx); err != nil || tickets[2].After() != after {
			t.Errorf("%v, after %q", err, tickets[2].After())
		}
	})
}

// TestTicketsFollowLeader: turns come wherever the leadership, and with it the client, goes, also
// of waiters that enter while the client moves.
func TestTicketsFollowLeader(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		ctx := ask(t)
		c := connect(t, client.Config{}, members...)
		g := must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: 20 * time.Second}))
		enter := func(i int) (*client.Ticket, string) {
			key := "follow/" + hexOf(g.ID()) + "." + strconv.Itoa(i)
			_, w, err := c.Enter(ctx, store.Txn{
				Then: []store.Op{store.Put{Key: key, Lease: g.ID()}},
			}, store.Wait{Key: key, Prefix: "follow/"})
			if err != nil {
				t.Error(err)
				return nil, key
			}
			return w, key
		}
		const rounds, each = 4, 10
		for i := range rounds {
			from := atLeader(ctx, t, members...)
			done := make(chan struct{})
			for n := range each {
				go func() {
					defer func() { done <- struct{}{} }()
					w, key := enter(i*each + n)
					if w == nil {
						return
					}
					if err := w.Wait(ctx); err != nil {
						t.Errorf("%s: %v", key, err)
					}
					del := store.Txn{Then: []store.Op{store.Delete{Key: key}}}
					if _, err := w.Leave(ctx, del); err != nil {
						t.Errorf("%s: %v", key, err)
					}
				}()
			}
			moveLeader(ctx, t, from, without(members, from)[i%2])
			for range each {
				<-done
			}
		}
	})
}

// TestTicketGoneMeanwhile: a waiter that is cut off while its key goes is told what took it when it
// is back, also if somebody has put one of that name since.
func TestTicketGoneMeanwhile(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx := ask(t)
		c := connect(t, client.Config{}, members...)
		other := inprocess.Connect(t, client.Config{}, members[0].Member.Endpoint())
		g := must[*client.Granted](t)(c.GrantOnly(ctx, client.Grant{TTL: time.Minute}))
		key := "meanwhile/" + hexOf(g.ID)
		_, w, err := c.Enter(ctx, store.Txn{
			Then: []store.Op{store.Put{Key: key, Lease: g.ID}},
		}, store.Wait{Key: key, Prefix: "meanwhile/"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		members[0].SetCut(true)
		if err := other.Revoke(ctx, leases.Ref{ID: g.ID}); err != nil {
			t.Fatal(err)
		}
		again := must[*client.Granted](t)(other.GrantOnly(ctx, client.Grant{ID: g.ID, TTL: time.Minute}))
		must[store.PutResult](t)(other.Put(ctx, store.Put{Key: key, Lease: again.ID}))
		members[0].SetCut(false)
		<-w.Context().Done()
		var gone *client.GoneError
		if !errors.As(w.Err(), &gone) || gone.Cause != store.Revoked || gone.Lease != g.ID {
			t.Errorf("gone: %v", w.Err())
		}
	})
}
