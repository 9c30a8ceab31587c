package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// TestWriterCacheChangesNoDecision checks that no decision changes because of the cache that
// records which callers can write all keys of a lease. Each decision of a random run is compared
// with a decision made without the cache.
func TestWriterCacheChangesNoDecision(t *testing.T) {
	m := tenants(t)
	rng := rand.New(rand.NewPCG(5, 5))
	// A user name must not be confused with a bound principal and its roles.
	mustApply(t, m, as(m, "root", &UserAdd{Name: "p\x00a", NoPassword: true}))
	mustApply(t, m, as(m, "root", &UserGrantRole{"p\x00a", "c"}))
	users := []string{"alice", "bob", "root", "p", "p\x00a"}
	grant := func(id lease.ID) {
		mustApply(t, m, as(m, "root", &Grant{Terms: lease.Terms{ID: id, TTL: 60_000}}))
	}
	for id := range lease.ID(3) {
		grant(id + 1)
	}
	var allowed, denied, remembered int
	for n := range tier.Budget(10_000, 40_000) {
		user := users[rng.IntN(len(users))]
		id := lease.ID(rng.IntN(3) + 1)
		key := fmt.Sprintf("%c%d", "abc"[min(2, rng.IntN(40))], rng.IntN(40))
		c := as(m, user, &Put{Key: key, Lease: id})
		if user == "p" {
			c = bound(m, user, c.Command, "a")
		}
		if len(m.meta.writers.of[id]) > 0 {
			remembered++
		}
		got := m.permit(c.Caller, c.Command)
		fresh := &permission{
			access: m.meta.access, lessor: m.lessor, writers: new(keyWriters), who: c.Caller,
		}
		want := fresh.put(c.Command.(*Put))
		if (got == nil) != (want == nil) {
			t.Fatalf("step %d: %s puts %s to lease %d: %v, and without a memory %v", n, user, key, id,
				got, want)
		}
		if got == nil {
			allowed++
		} else {
			denied++
		}
		switch rng.IntN(200) {
		case 0:
			mustApply(t, m, as(m, "root", &Revoke{ID: id}))
			grant(id)
		case 1:
			mustApply(t, m, as(m, "root", &RoleAdd{Name: fmt.Sprint("new", n)}))
		case 2, 3, 4:
			mustApply(t, m, as(m, "root", &DeleteRange{Key: "b", End: "c"}))
		case 5, 6, 7:
			mustApply(t, m, as(m, "root", &DeleteRange{Key: "c", End: "d"}))
		default:
			apply(t, m, c)
		}
	}
	if min(allowed, denied, remembered) < 1_000 {
		t.Errorf("%d allowed, %d denied, %d with a memory: the test tells little", allowed, denied,
			remembered)
	}
}

// TestWritersAreBounded checks that the size of this cache is bounded.
func TestWritersAreBounded(t *testing.T) {
	w := keyWriters{by: tenants(t).meta.access}
	m := tenants(t)
	for id := range lease.ID(3) {
		mustApply(t, m, as(m, "root", &Grant{Terms: lease.Terms{ID: id + 1, TTL: 60_000}}))
		for i := range fewKeys + 1 {
			mustApply(t, m, as(m, "root", &Put{Key: fmt.Sprint("a", id, "/", i), Lease: id + 1}))
		}
	}
	p := &permission{access: m.meta.access, lessor: m.lessor, writers: &w}
	most, all := 0, 0
	for i := range 2 * maxWriters {
		who := access.Caller{User: "x", Revision: m.meta.access.Revision(), Bound: &access.Bound{
			Roles: []string{fmt.Sprint(i)},
		}}
		p.who = who
		_ = p.mayWriteAll(lease.ID(i%3 + 1))
		sum := 0
		for _, of := range w.of {
			most, sum = max(most, len(of)), sum+len(of)
		}
		if all = max(all, sum); sum != w.n {
			t.Fatalf("%d are counted as %d", sum, w.n)
		}
	}
	if most != maxOfLease || all > maxWriters {
		t.Errorf("at most %d of a lease and %d of all were remembered", most, all)
	}
}
