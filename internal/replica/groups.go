package replica

import (
	"maps"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// Keeper identifies what keeps groups of leases alive: a stream of a client to the leader, or of a
// relay. The caller draws it, above 0 and never twice while the process runs.
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
	// for none. It is set when the Renewals is in Output.Together. Rounds is how many rounds the
	// keeper's groups had then.
	Joined []lease.GroupID
	Rounds uint64
	// Round are the leases that leave the keeper's groups, and the groups to be renewed after that.
	// If there are any, Take returns the Renewals once in Output.Groups, with a RenewedGroup for
	// each of the groups. The numbers rise, or are 0 if the keeper counts no rounds.
	holder.Round
	Renewed []holder.RenewedGroup
	// End says that the keeper is gone: its stream has ended. It asks for nothing else then, and is
	// not answered.
	End bool
}

// asks reports whether there is anything to answer.
func (g *GroupRenewals) asks() bool { return len(g.Leave)+len(g.Renew) > 0 }

// over answers that no group is renewed.
func (g *GroupRenewals) over() {
	g.Renewed = make([]holder.RenewedGroup, len(g.Renew))
	for i, id := range g.Renew {
		g.Renewed[i].ID = id
	}
}

// keepers are the groups that a leader has, by keeper and TTL. They end with the leadership: a
// group promises nothing by itself, and the next leader's keepers join their leases again.
type keepers struct {
	m      *local
	of     map[Keeper]*keeper
	room   int           // for so many keepers; then those without groups are forgotten
	access *access.State // as of the last entry
}

// keeper is what a leader has of a Keeper.
type keeper struct {
	groups map[lease.TTL]lease.GroupID
	rounds uint64 // the number of the last round that was answered
}

// join takes a lease that was just renewed into the group of a keeper and a TTL.
func (k *keepers) join(by Keeper, id lease.ID, n lease.Renewal) lease.GroupID {
	its := k.need(by)
	g := its.groups[n.TTL]
	if !k.m.lessor.HasGroup(g) {
		if g == 0 && len(its.groups) >= MaxGroups && !k.prune(its.groups) {
			return 0
		}
		k.m.lastGroup++
		g = k.m.lastGroup
		its.groups[n.TTL] = g
		k.m.lessor.OpenGroup(g, n.TTL)
	}
	if !k.m.lessor.Join(g, id, n.Token) {
		return 0
	}
	return g
}

// MaxGroups bounds the groups of a keeper. Those that are over count until others need their place.
const MaxGroups = 64

// prune forgets groups that are over, and reports whether there were any.
func (k *keepers) prune(groups map[lease.TTL]lease.GroupID) bool {
	before := len(groups)
	maps.DeleteFunc(groups, func(_ lease.TTL, g lease.GroupID) bool { return !k.m.lessor.HasGroup(g) })
	return len(groups) < before
}

const minRoom = 64

// need returns a keeper, which is made if it is new. A renewal may come after the end of its
// keeper, so those are forgotten now and then that have no groups.
func (k *keepers) need(by Keeper) *keeper {
	its := k.of[by]
	if its == nil {
		if k.of == nil {
			k.of = make(map[Keeper]*keeper)
		}
		if len(k.of) >= k.room {
			maps.DeleteFunc(k.of, func(_ Keeper, its *keeper) bool {
				k.prune(its.groups)
				return len(its.groups) == 0
			})
			k.room = 2*len(k.of) + minRoom
		}
		its = &keeper{groups: make(map[lease.TTL]lease.GroupID)}
		k.of[by] = its
	}
	return its
}

// renew does what a keeper asks about its groups.
func (k *keepers) renew(r *GroupRenewals) {
	if r.End {
		k.end(r.Keeper)
		return
	}
	its := k.of[r.Keeper]
	if r.Fresh && its != nil {
		k.dissolve(its, false)
	}
	for _, l := range r.Leave {
		g := k.m.lessor.GroupOf(l.ID)
		if g != 0 && its.has(g) && (l.Group == 0 || l.Group == g) {
			k.m.lessor.Leave(g, l.ID, l.AsOf)
		}
	}
	r.over()
	for i, g := range r.Renew {
		if its.has(g) {
			r.Renewed[i].TTL, _ = k.m.lessor.RenewGroup(g)
			r.Renewed[i].At = k.m.now
		}
	}
}

func (k *keeper) has(g lease.GroupID) bool {
	if k == nil {
		return false
	}
	for _, its := range k.groups {
		if its == g {
			return true
		}
	}
	return false
}

// settle takes the second look at what is confirmed, as [leadership.settle] does: what has left a
// group since its renewal is reported with it, and not with a later one.
func (k *keepers) settle(r *GroupRenewals) {
	if r.Number > 0 {
		k.need(r.Keeper).rounds = r.Number
	}
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

// joined takes the second look at a lease that has joined a group.
func (k *keepers) joined(id lease.ID, g lease.GroupID) lease.GroupID {
	if g != 0 && k.m.lessor.GroupOf(id) != g {
		return 0
	}
	return g
}

// rounds returns how many rounds of a keeper were answered.
func (k *keepers) rounds(by Keeper) uint64 {
	if its := k.of[by]; its != nil {
		return its.rounds
	}
	return 0
}

// end ends the groups of a keeper that is gone. Its leases are untended.
func (k *keepers) end(by Keeper) {
	if its := k.of[by]; its != nil {
		k.dissolve(its, true)
		delete(k.of, by)
	}
}

func (k *keepers) dissolve(its *keeper, untended bool) {
	for _, g := range its.groups {
		k.m.lessor.EndGroup(g, untended)
	}
	clear(its.groups)
}

// follow ends all groups if users or roles have changed: in the revision of the change, a lease
// leaves its group whose keeper may not hold it any more. The others join again.
func (k *keepers) follow(now *access.State) {
	if now == k.access {
		return
	}
	k.access = now
	for _, by := range slices.Sorted(maps.Keys(k.of)) {
		k.dissolve(k.of[by], false)
	}
}
