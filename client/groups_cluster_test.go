package client_test

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/test/inprocess"
)

// TestGroupsOfClient checks that a client's leases are kept alive together while leases are added,
// changed and removed. Released leases end on time.
func TestGroupsOfClient(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		c, ctx := connect(t, client.Config{}, members...), ask(t)
		const ttl = 10 * time.Second
		var all []*client.Lease
		for range 20 {
			all = append(all, must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: ttl})))
		}
		var given *client.Lease
		for round := range 12 {
			time.Sleep(ttl)
			for i, l := range all {
				left := time.Until(l.ValidUntil())
				if l.Err() != nil || left < ttl/2 || !l.Valid() {
					t.Fatalf("round %d: lease %d is valid for %v: %v", round, i, left, l.Err())
				}
				d := must[leases.Info](t)(c.Describe(ctx, leases.Ref{ID: l.ID()}))
				if d.Remaining < ttl/2 || d.Remaining < time.Until(l.ValidUntil()) {
					t.Errorf("round %d: lease %d has %v left at the leader", round, i, d.Remaining)
				}
			}
			switch round {
			case 2:
				if err := all[0].Revoke(ctx); err != nil {
					t.Error(err)
				}
				all = all[1:]
			case 4:
				given, all = all[0], all[1:]
				given.Close()
			case 6:
				if given != nil {
					if _, err := c.Describe(ctx, leases.Ref{ID: given.ID()}); err == nil {
						t.Error("a lease that was given up is still there")
					}
				}
			case 8:
				if err := all[0].ChangeTTL(ctx, ttl/2); err != nil {
					t.Error(err)
				}
				all = all[1:]
			}
		}
	})
}
