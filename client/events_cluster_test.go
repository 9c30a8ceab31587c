package client_test

import (
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
)

// TestLeaseEventsFaults: the life of leases is told whole and in order while the client is
// driven from member to member, and notice is given of those that nobody renews alone.
func TestLeaseEventsFaults(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 3)
		c, other := connect(t, client.Config{}, members...), connect(t, client.Config{}, members...)
		ctx := ask(t)
		follow := func(o leases.Watch) *client.LeaseWatcher {
			w := must[*client.LeaseWatcher](t)(c.LeaseEvents(ctx, o))
			t.Cleanup(w.Close)
			return w
		}
		all := follow(leases.Watch{NamePrefix: "e/"})
		var queue []leases.Event
		expect := func(kind leases.Kind, id lease.ID) leases.Event {
			t.Helper()
			for len(queue) == 0 {
				queue = must[leases.Update](t)(all.Next(ctx)).Events
			}
			e := queue[0]
			queue = queue[1:]
			if e.Kind != kind || e.Lease.ID != id {
				t.Fatalf("%+v, want %v of lease %d", e, kind, id)
			}
			return e
		}
		grant := func(name string, ttl time.Duration) *client.Lease {
			return must[*client.Lease](t)(other.Grant(ctx, client.Grant{
				TTL: ttl, Name: name, Owner: "ann",
			}))
		}
		first := grant("e/first", time.Minute)
		start := expect(leases.Granted, first.ID()).Seq
		for i := range 6 {
			held := grant("e/held", time.Minute)
			expect(leases.Granted, held.ID())
			if _, err := held.HandOver(ctx, "bob"); err != nil {
				t.Fatal(err)
			}
			if e := expect(leases.HandedOver, held.ID()); e.By != "ann" || e.Lease.Owner != "bob" {
				t.Errorf("handed over: %+v", e)
			}
			m := members[i%3]
			m.SetCut(true)
			if err := other.Revoke(ctx, leases.Ref{ID: held.ID()}); err != nil {
				t.Fatal(err)
			}
			if e := expect(leases.Revoked, held.ID()); e.By != "unix socket" {
				t.Errorf("revoked: %+v", e)
			}
			m.SetCut(false)
		}

		near := follow(leases.Watch{Owner: "ann", ExpiringWithin: time.Hour})
		kept, left := grant("kept", 12*time.Second), grant("left", 2*time.Second)
		left.Close()
		renewed(t, kept)
		for ended := false; !ended; {
			for _, e := range must[leases.Update](t)(near.Next(ctx)).Events {
				if e.Kind == leases.Expiring && e.Lease.Remaining > e.Lease.TTL {
					t.Errorf("notice with %v left", e.Lease.Remaining)
				}
				ended = ended || e.Kind == leases.Expired && e.Lease.ID == left.ID()
			}
		}
		again := follow(leases.Watch{After: start})
		if e := must[leases.Update](t)(again.Next(ctx)).Events[0]; e.Seq != start+1 {
			t.Errorf("from the beginning: %+v", e)
		}
		_, err := c.LeaseEvents(ctx, leases.Watch{After: 1 << 40})
		if !errors.Is(err, client.ErrCompacted) {
			t.Errorf("from the future: %v", err)
		}
	})
}
