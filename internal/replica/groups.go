package replica

import (
	"maps"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/holder"
	"leasehold.dev/lease"
)

// Keeper identifies a process that keeps groups of leases alive: a client or relay with a stream to
// the leader, or another member. The caller assigns the Keepers of streams. They must be above 0
// and below firstMember, and each can be used only once in the life of the process.
type Keeper uint64

// firstMember is the first Keeper that a leader assigns to another member.
const firstMember Keeper = 1 << 63

// GroupRenewals is the part of a Renewals that concerns the keeper's groups, with its outcome.
type GroupRenewals struct {
	// Keeper owns the groups that the renewed leases join, one group per TTL. Leases that must be
	// checked separately do not join a group. Each lease is in at most one group. If Keeper is 0,
	// no lease joins a group.
	Keeper Keeper
	// Access is the state of users and roles that allowed the keeper to renew the leases. If that
	// state has changed since, no lease joins, because the keeper may no longer be allowed to renew
	// one of them.
	Access *access.State
	// Joined has one element for each lease if there is a keeper: the group that the lease joined,
	// or 0. Rounds is the number of the last answered round of the keeper's groups. Both are set
	// when the Renewals is in Output.Together.
	Joined []lease.GroupID
	Rounds uint64
	// Round lists the leases that leave the keeper's groups, and the groups to renew after that. If
	// there are any, Take returns the Renewals once in Output.Groups, with one RenewedGroup for
	// each group. A keeper's round numbers increase, or are all 0 if it does not number its rounds.
	holder.Round
	Renewed []holder.RenewedGroup
	// End is set if the keeper's stream has ended. Such a request contains nothing else and is not
	// answered.
	End bool
}

// asks reports whether the request needs an answer.
func (g *GroupRenewals) asks() bool { return len(g.Leave)+len(g.Renew) > 0 }

// over sets the answer that no groups were renewed.
func (g *GroupRenewals) over() {
	g.Renewed = make([]holder.RenewedGroup, len(g.Renew))
	for i, id := range g.Renew {
		g.Renewed[i].ID = id
	}
}

// keepers holds a leader's groups, by keeper and TTL. They end with the leadership. That is
// harmless: a group alone promises nothing, and keepers let their leases join groups of the next
// leader.
type keepers struct {
	lessor *lease.Lessor
	of     map[Keeper]*keeper
	room   int           // number of keepers above which those without groups are removed
	access *access.State // as of the last entry
	last   lease.GroupID // newest group that this process has created
}

// keeper is a leader's state for one Keeper.
type keeper struct {
	groups map[lease.TTL]lease.GroupID
	rounds uint64 // number of the last answered round
	full   bool   // the current request found no room for another group; see keepers.join
}

// join adds a lease that has just been renewed to the keeper's group for its TTL.
func (k *keepers) join(by Keeper, id lease.ID, n lease.Renewal) lease.GroupID {
	its := k.need(by)
	g := its.groups[n.TTL]
	if !k.lessor.HasGroup(g) {
		if g == 0 && len(its.groups) >= MaxGroups {
			// A request can contain many leases, so prune is tried only for the first one that
			// finds no room.
			if its.full = its.full || !k.prune(its.groups); its.full {
				return 0
			}
		}
		k.last++
		g = k.last
		its.groups[n.TTL] = g
		k.lessor.OpenGroup(g, n.TTL)
	}
	if !k.lessor.Join(g, id, n.Token) {
		return 0
	}
	return g
}

// MaxGroups bounds the number of groups per keeper, because each group takes memory at the leader
// and every round lists all of them. All clients of a follower share its groups. If they use more
// TTLs than that, the remaining leases are renewed individually, which costs more but keeps every
// promise. Groups that have ended count until their slots are needed.
const MaxGroups = 64

// prune removes groups that have ended, and reports whether it removed any.
func (k *keepers) prune(groups map[lease.TTL]lease.GroupID) bool {
	before := len(groups)
	maps.DeleteFunc(groups, func(_ lease.TTL, g lease.GroupID) bool { return !k.lessor.HasGroup(g) })
	return len(groups) < before
}

const minRoom = 64

// need returns the state of a keeper, creating it if necessary. A renewal can arrive after its
// keeper has ended, so keepers without groups are removed occasionally.
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

// renew processes a keeper's request about its groups.
func (k *keepers) renew(r *GroupRenewals, now lease.Instant) {
	if r.End {
		k.end(r.Keeper)
		return
	}
	its := k.of[r.Keeper]
	if its != nil {
		its.full = false
		if r.Fresh {
			k.dissolve(its, false)
		}
	}
	for _, l := range r.Leave {
		g := k.lessor.GroupOf(l.ID)
		if g != 0 && its.has(g) && (l.Group == 0 || l.Group == g) {
			k.lessor.Leave(g, l.ID, l.AsOf)
		}
	}
	r.over()
	for i, g := range r.Renew {
		if its.has(g) {
			r.Renewed[i].TTL, _ = k.lessor.RenewGroup(g)
			r.Renewed[i].At = now
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

// settle checks groups again after the confirm round, like [leadership.settle]. A lease that left a
// group since the group was renewed is reported now rather than in a later round.
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
		if g.Left, ok = k.lessor.Left(g.ID); !ok {
			g.TTL = 0
		}
	}
}

// joined returns g if a lease that joined g is still in it, and 0 otherwise.
func (k *keepers) joined(id lease.ID, g lease.GroupID) lease.GroupID {
	if g != 0 && k.lessor.GroupOf(id) != g {
		return 0
	}
	return g
}

// rounds returns the number of a keeper's last answered round.
func (k *keepers) rounds(by Keeper) uint64 {
	if its := k.of[by]; its != nil {
		return its.rounds
	}
	return 0
}

// end ends the groups of a keeper. Its leases become untended.
func (k *keepers) end(by Keeper) {
	if its := k.of[by]; its != nil {
		k.dissolve(its, true)
		delete(k.of, by)
	}
}

// dissolve ends groups in order of their IDs. The lessor orders leases by when they left their
// groups, so with a map's order a run of the simulator could not be repeated.
func (k *keepers) dissolve(its *keeper, untended bool) {
	for _, g := range slices.Sorted(maps.Values(its.groups)) {
		k.lessor.EndGroup(g, untended)
	}
	clear(its.groups)
}

// follow ends all groups if users or roles have changed. So a lease that the keeper is no longer
// allowed to hold leaves its group in the same revision as the change. The other leases can join
// again.
func (k *keepers) follow(now *access.State) {
	if now == k.access {
		return
	}
	k.access = now
	for _, by := range slices.Sorted(maps.Keys(k.of)) {
		k.dissolve(k.of[by], false)
	}
}
