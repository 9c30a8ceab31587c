package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

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
