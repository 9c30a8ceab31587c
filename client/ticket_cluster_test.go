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

// TestTicketsFaults checks two clients that are connected to different members and wait in one
// queue while members stop, are cut off and lose responses. Each client gets its turn, and both
// detect when a key is gone (Q1).
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
			members[2].Lose(1) // loses the response when b enters, or the next message
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

// TestTicketGoneMeanwhile checks that a waiter that was cut off while its key was deleted receives
// the cause, even if the key has been created again.
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
