package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// groupsOf is a sole voter, and a keeper that renews the voter's leases in groups.
type groupsOf struct {
	*member
	by Keeper
}

func (g groupsOf) join(ids ...lease.ID) []lease.GroupID {
	g.t.Helper()
	b := together(ids...)
	b.Keeper = g.by
	g.r.RenewAll(b)
	g.settle()
	if !slices.Contains(g.together, b) {
		g.t.Fatal("renewal not answered")
	}
	return b.Joined
}

func (g groupsOf) ask(r GroupRenewals) []holder.RenewedGroup {
	g.t.Helper()
	r.Keeper = g.by
	b := &Renewals{Owner: "groups", GroupRenewals: r}
	g.r.RenewAll(b)
	g.take()
	answers := 0
	for range 5 {
		if slices.Contains(g.groups, b) {
			answers++
		}
		g.groups = nil
		g.settle()
	}
	if answers != 1 {
		g.t.Fatalf("groups answered %d times", answers)
	}
	return b.Renewed
}

func (g groupsOf) renew(id lease.GroupID) holder.RenewedGroup {
	g.t.Helper()
	return g.ask(GroupRenewals{Round: holder.Round{Renew: []lease.GroupID{id}}})[0]
}

// TestGroups checks that leases join a keeper's groups by TTL. Renewing a group reports which
// leases have left it. No stream can renew another stream's group.
func TestGroups(t *testing.T) {
	m := lead(t)
	for id := range lease.ID(6) {
		ttl := lease.TTL(10_000)
		if id == 4 {
			ttl = 20_000
		}
		m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: id + 1, TTL: ttl}}})
	}
	m.settle()
	a, b := groupsOf{m, 1}, groupsOf{m, 2}
	joined := a.join(1, 2, 3, 5)
	g := joined[0]
	if g == 0 || joined[1] != g || joined[2] != g || joined[3] == 0 || joined[3] == g {
		t.Fatalf("joined %v", joined)
	}
	if r := b.renew(g); r.TTL != 0 {
		t.Errorf("another keeper renewed the group: %+v", r)
	}
	m.r.Propose(&Proposal{Command: &fsm.Revoke{ID: 1}})
	m.settle()
	if r := a.renew(g); r.TTL != 10_000 || !slices.Equal(r.Left, []lease.ID{1}) {
		t.Errorf("after a revocation: %+v", r)
	}
	// The lease has now moved to the holder's other stream.
	if its := b.join(2, 6); its[0] == 0 || its[0] == g || its[1] != its[0] {
		t.Errorf("joined %v", its)
	}
	if r := a.renew(g); r.TTL != 10_000 || !slices.Equal(r.Left, []lease.ID{2}) {
		t.Errorf("after another keeper took a lease: %+v", r)
	}
	a.ask(GroupRenewals{Round: holder.Round{Leave: []holder.Leaving{{ID: 3}, {ID: 6}}}})
	if m.m.Lessor().GroupOf(3) != 0 || m.m.Lessor().GroupOf(6) == 0 {
		t.Error("lease 3 has not left, or another keeper's lease has")
	}
	if r := a.renew(g); r.TTL != 0 {
		t.Errorf("empty group: %+v", r)
	}
	if again := a.join(3); again[0] == 0 || again[0] == g {
		t.Errorf("joined %v, want another group than %d", again, g)
	}
	m.r.RenewAll(&Renewals{GroupRenewals: GroupRenewals{Keeper: 1, End: true}})
	if r := a.renew(joined[3]); r.TTL != 0 {
		t.Errorf("the group outlived its keeper: %+v", r)
	}
}

// TestGroupsOfCaches checks that a lease with a cache does not join any group, because its renewals
// can be delayed.
func TestGroupsOfCaches(t *testing.T) {
	m := lead(t)
	m.r.Propose(&Proposal{Command: &fsm.Grant{
		Terms: lease.Terms{ID: 1, TTL: 10_000}, Holds: []keyrange.Range{{Key: "c", End: "d"}},
	}})
	m.settle()
	a := groupsOf{m, 1}
	if joined := a.join(1); joined[0] != 0 {
		t.Errorf("joined %v", joined)
	}
}

// TestGroupsEndWithLeadership checks that groups end with the leader's term.
func TestGroupsEndWithLeadership(t *testing.T) {
	m := lead(t)
	m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 10_000}}})
	m.settle()
	a := groupsOf{m, 1}
	g := a.join(1)[0]
	m.r.lead.distrust() // refreshes all leases, like a new term
	m.settle()
	if r := a.renew(g); r.TTL != 0 {
		t.Errorf("the group was renewed: %+v", r)
	}
	if joined := a.join(1); joined[0] <= g {
		t.Errorf("joined %v after group %d", joined, g)
	}
}

// TestMaxGroups checks that the number of groups per keeper is bounded. When a group ends, another
// can begin.
func TestMaxGroups(t *testing.T) {
	m := lead(t)
	a := groupsOf{m, 1}
	for id := range lease.ID(MaxGroups + 2) {
		ttl := 10_000 + lease.TTL(id)
		m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: id + 1, TTL: ttl}}})
		m.settle()
		joined := a.join(id + 1)[0] != 0
		if joined != (id != MaxGroups) {
			t.Errorf("lease %d joined: %v", id+1, joined)
		}
		if id == MaxGroups { // the first group ends
			a.ask(GroupRenewals{Round: holder.Round{Leave: []holder.Leaving{{ID: 1}}}})
		}
	}
}

// TestKeepersAreForgotten checks that a renewal that arrives after its keeper has ended leaves no
// state behind.
func TestKeepersAreForgotten(t *testing.T) {
	m := lead(t)
	m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 10_000}}})
	m.settle()
	for by := range Keeper(10 * minRoom) {
		m.r.RenewAll(&Renewals{GroupRenewals: GroupRenewals{Keeper: by + 1, End: true}})
		groupsOf{m, by + 1}.join(1) // moves the lease out of the earlier keeper's group
	}
	if n := len(m.r.lead.keepers.of); n > 2*minRoom {
		t.Errorf("%d keepers, one of them with a group", n)
	}
}

// TestGroupRounds checks that a lease leaves only the group named in the request, as of a given
// renewal of that group. A join reports how many rounds were answered before it. A round marked as
// fresh starts without groups.
func TestGroupRounds(t *testing.T) {
	m := lead(t)
	for id := range lease.ID(2) {
		m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: id + 1, TTL: 10_000}}})
	}
	m.settle()
	a := groupsOf{m, 1}
	g := a.join(1, 2)[0]
	round := func(r holder.Round) holder.RenewedGroup {
		t.Helper()
		m.now += 1000
		m.r.Advance(m.now)
		r.Renew = []lease.GroupID{g}
		return a.ask(GroupRenewals{Round: r})[0]
	}
	first := round(holder.Round{Number: 1})
	second := round(holder.Round{Number: 2, Leave: []holder.Leaving{{ID: 2, Group: g + 1}}})
	if first.TTL != 10_000 || second.At != first.At+1000 || m.m.Lessor().GroupOf(2) != g {
		t.Errorf("renewed %+v and %+v", first, second)
	}
	round(holder.Round{Number: 3, Leave: []holder.Leaving{{ID: 2, Group: g, AsOf: first.At}}})
	if at, _ := m.m.Lessor().Expiry(2); at != first.At+10_001 {
		t.Errorf("the lease that left may end at %d, want %d", at, first.At+10_001)
	}
	b := together(2)
	b.Keeper = 1
	m.r.RenewAll(b)
	if m.settle(); b.Joined[0] != g || b.Rounds != 3 {
		t.Errorf("joined %v after %d rounds", b.Joined, b.Rounds)
	}
	if r := round(holder.Round{Number: 4, Fresh: true}); r.TTL != 0 {
		t.Errorf("a new round renewed %+v", r)
	}
}
