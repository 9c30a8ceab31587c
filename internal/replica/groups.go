package replica

import (
	"maps"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// Keeper identifies what keeps groups of leases alive: a stream of a client to the leader. The
// caller draws it, above 0 and never twice while the process runs.
type Keeper uint64

// GroupRenewals are what a Renewals asks about groups of its keeper, and the outcome.
type GroupRenewals struct {
	// Keeper is what the leases join: those that are renewed without further ado are in its groups
	// then, one for each TTL. Each is in one group at a time. 0: they join none.
	Keeper Keeper
	// Access are the users and roles by which the keeper may renew the leases. If they have changed
	// since, none joins: it may be one that the keeper must not renew any more.
	Access *access.State
	// Joined has a place for each lease, if there is a keeper: the group that the lease is in, 0
	// for none. It is set when the Renewals is in Output.Together.
	Joined []lease.GroupID
	// Leave are leases that leave the keeper's groups, and Renew are groups to be renewed after
	// that. If there are any of them, Take returns the Renewals once in Output.Groups, with a
	// RenewedGroup for each of Renew.
	Leave   []lease.ID
	Renew   []lease.GroupID
	Renewed []RenewedGroup
}

// RenewedGroup is the outcome of the renewal of a group.
type RenewedGroup struct {
	ID lease.GroupID
	// TTL is that of the leases, 0 if the group is over: then nothing was renewed.
	TTL lease.TTL
	// Left are leases that are not in the group any more; see [lease.Lessor.Left].
	Left []lease.ID
}

// asks reports whether there is anything to answer.
func (g *GroupRenewals) asks() bool { return len(g.Leave)+len(g.Renew) > 0 }

// over answers that no group is renewed.
func (g *GroupRenewals) over() {
	g.Renewed = make([]RenewedGroup, len(g.Renew))
	for i, id := range g.Renew {
		g.Renewed[i].ID = id
	}
}

// keepers are the groups that a leader has, by keeper and TTL. They end with the leadership: a
// group promises nothing by itself, and the next leader's keepers join their leases again.
type keepers struct {
	m      *local
	of     map[Keeper]map[lease.TTL]lease.GroupID
	access *access.State // as of the last entry
}

// join takes a lease that was just renewed into the group of a keeper and a TTL.
func (k *keepers) join(by Keeper, id lease.ID, n lease.Renewal) lease.GroupID {
	groups := k.of[by]
	if groups == nil {
		if k.of == nil {
			k.of = make(map[Keeper]map[lease.TTL]lease.GroupID)
		}
		groups = make(map[lease.TTL]lease.GroupID)
		k.of[by] = groups
	}
	g := groups[n.TTL]
	if !k.m.lessor.HasGroup(g) {
		if g == 0 && len(groups) >= maxGroups && !k.prune(groups) {
			return 0
		}
		k.m.lastGroup++
		g = k.m.lastGroup
		groups[n.TTL] = g
		k.m.lessor.OpenGroup(g, n.TTL)
	}
	if !k.m.lessor.Join(g, id, n.Token) {
		return 0
	}
	return g
}

// maxGroups bounds the groups of a keeper. Those that are over count until others need their place.
const maxGroups = 64

// prune forgets groups that are over, and reports whether there were any.
func (k *keepers) prune(groups map[lease.TTL]lease.GroupID) bool {
	before := len(groups)
	maps.DeleteFunc(groups, func(_ lease.TTL, g lease.GroupID) bool { return !k.m.lessor.HasGroup(g) })
	return len(groups) < before
}

// renew does what a keeper asks about its groups.
func (k *keepers) renew(r *GroupRenewals) {
	groups := k.of[r.Keeper]
	for _, id := range r.Leave {
		if g := k.m.lessor.GroupOf(id); g != 0 && k.has(groups, g) {
			k.m.lessor.Leave(g, id)
		}
	}
	r.over()
	for i, g := range r.Renew {
		if k.has(groups, g) {
			r.Renewed[i].TTL, _ = k.m.lessor.RenewGroup(g)
		}
	}
}

func (k *keepers) has(groups map[lease.TTL]lease.GroupID, g lease.GroupID) bool {
	for _, its := range groups {
		if its == g {
			return true
		}
	}
	return false
}

// settle takes the second look at what is confirmed, as [leadership.settle] does: what has left a
// group since its renewal is reported with it, and not with a later one.
func (k *keepers) settle(r *GroupRenewals) {
	for i := range r.Renewed {
		g := &r.Renewed[i]
		if g.TTL == 0 {
			continue
		}
		var ok bool
		if g.Left, ok = k.m.lessor.Left(g.ID); !ok {
			g.TTL = 0
		}
	}
}

// end ends the groups of a keeper that is gone. Its leases are untended.
func (k *keepers) end(by Keeper) {
	for _, g := range k.of[by] {
		k.m.lessor.EndGroup(g, true)
	}
	delete(k.of, by)
}

// follow ends all groups if users or roles have changed: in the revision of the change, a lease
// leaves its group whose keeper may not hold it any more. The others join again.
func (k *keepers) follow(now *access.State) {
	if now == k.access {
		return
	}
	k.access = now
	for _, by := range slices.Sorted(maps.Keys(k.of)) {
		for _, g := range k.of[by] {
			k.m.lessor.EndGroup(g, false)
		}
	}
	k.of = nil
}

// EndKeeper says that a keeper is gone: its stream has ended.
func (r *Replica) EndKeeper(by Keeper) {
	if r.lead != nil {
		r.lead.keepers.end(by)
	}
}
