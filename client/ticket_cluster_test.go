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

// TestTicketGoneMeanwhile checks that a waiter that was cut off while its key was deleted gets the
// cause, even if the key exists again.
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
