package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestRenewWithToken checks that a renewal with the token of an earlier incarnation fails with "not
// found" through any member, and does not extend the lease (T28). A renewal with the right token,
// or without a token, succeeds.
func TestRenewWithToken(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	grant := &fsm.Grant{Terms: lease.Terms{ID: 7, TTL: 5000}}
	c.propose(c.members[1], grant, "first")
	c.run()
	old, _ := c.members[1].r.lessor.Lookup(7)
	c.propose(c.members[1], &fsm.Revoke{ID: 7}, "revoke")
	c.propose(c.members[1], grant, "second")
	c.run()
	now, _ := c.members[1].r.lessor.Lookup(7)
	for _, id := range []uint64{1, 2} {
		p := c.members[id]
		for token, want := range map[lease.Token]string{
			0: "ttl 5000", now.Token: "ttl 5000",
			old.Token: "lease: not found", now.Token + 1: "lease: not found",
		} {
			owner := fmt.Sprint(id, " renews with ", token)
			p.r.Renew(Renewal{ID: 7, Token: token, Owner: owner})
			c.run()
			if got := c.asks[owner]; got != want {
				t.Errorf("%s: %q, want %q", owner, got, want)
			}
		}
	}
	before, _ := c.members[1].r.lessor.Remaining(7)
	c.pass(1000)
	c.members[2].r.Renew(Renewal{ID: 7, Token: old.Token, Owner: "late"})
	c.run()
	if after, _ := c.members[1].r.lessor.Remaining(7); after >= before || c.asks["late"] == "" {
		t.Errorf("%d ms left after a stale renewal, %d before", after, before)
	}
}

// TestManyQueriesInOneRound checks that a single round can query the leader about many leases for
// several reads, and that each read gets its own answer.
func TestManyQueriesInOneRound(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	const n = 100
	ids := make([]lease.ID, n)
	for i := range ids {
		ids[i] = lease.ID(i + 1)
		if i%2 == 0 {
			c.propose(c.members[1], &fsm.Grant{
				Terms: lease.Terms{ID: ids[i], TTL: lease.TTL(1000 * (i + 1))},
			}, "grant", fmt.Sprint(i))
		}
	}
	c.run()
	for _, id := range []uint64{1, 2} {
		p := c.members[id]
		first := &Read{Owner: fmt.Sprint(id, " first"), Leases: ids[:60]}
		none := &Read{Owner: fmt.Sprint(id, " none")}
		second := &Read{Owner: fmt.Sprint(id, " second"), Leases: ids[60:]}
		for _, q := range []*Read{first, none, second} {
			p.r.Read(q)
		}
		c.run()
		left := append(append([]Left(nil), first.Left...), second.Left...)
		if len(left) != n || len(none.Left) != 0 {
			t.Fatalf("member %d: %d and %d answers", id, len(left), len(none.Left))
		}
		for i, l := range left {
			if l.Found != (i%2 == 0) || l.Found && l.TTL != lease.TTL(1000*(i+1)) {
				t.Errorf("member %d: lease %d: %+v", id, i+1, l)
			}
		}
	}
}
