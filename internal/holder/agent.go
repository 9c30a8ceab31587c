package holder

import (
	"container/list"
	"maps"
	"slices"

	"leasehold.dev/lease"
)

// An Agent keeps leases alive on behalf of holders that renew through it, such as the clients of a
// relay or a follower. It renews them in groups. The lessor is involved with an individual lease
// only when the lease joins or leaves a group.
//
// The agent makes no promises of its own. A holder's request waits for a round: a renewal of groups
// that is sent after the request arrived. The request gets the outcome of that round. If a lease's
// holder falls silent, the lease leaves its group as of the last round that answered one of the
// holder's requests. The lessor therefore ends the lease when it would have ended it without the
// agent.
//
// Only one round is in flight at a time, and the lessor processes each round once. When a lease
// joins, the lessor reports how many rounds it had answered by then. The agent ignores the join if
// a later answer may have revoked it. If a round gets no answer, all groups end (Reset), and the
// next round reports that to the lessor (Fresh). So the order in which answers arrive does not
// matter.
//
// H identifies a holder, and R is the caller's request. An Agent is pure, like a Set. The zero
// Agent is empty.
type Agent[H comparable, R any] struct {
	leases map[lease.ID]*kept[H, R]
	groups map[lease.GroupID]*agentGroup[H, R]
	// over contains groups that have ended. Some of their leases may still be in leases: see
	// forget.
	over     []*agentGroup[H, R]
	sent     uint64 // number of the last round
	answered uint64 // number of the last answered round: equal to sent, or one less
	fresh    bool   // the lessor may still have groups that the agent has ended
	// leave contains the leases that will leave their groups in the next round. leaving contains
	// the leases that leave in the round in flight.
	leave, leaving map[departure]Leaving
	// the keys of leave in order of arrival, plus some keys that are no longer in leave
	order   []departure
	waiting int  // number of requests without an outcome
	wanted  bool // see Want
}

// kept is a lease that is in a group.
type kept[H comparable, R any] struct {
	id        lease.ID
	by        H
	token     lease.Token // from the request that joined; 0 matches any token
	group     *agentGroup[H, R]
	renewedAt instant       // when its holder last sent a request to renew it
	asOf      lease.Instant // see Leaving
	place     *list.Element // in the group's leases
}

// agentGroup is a group of the lessor that the agent renews.
type agentGroup[H comparable, R any] struct {
	id     lease.GroupID
	ttl    lease.TTL
	over   bool            // the group has ended
	leases list.List       // of type *kept, ordered by renewedAt
	asked  []request[H, R] // requests to be answered by the round in flight
	next   []request[H, R] // requests to be answered by the round after that
}

// request is a request from a holder. A round answers it only if the agent still keeps the lease
// for that holder with that token, because another holder may have taken over the lease in the
// meantime.
type request[H comparable, R any] struct {
	id    lease.ID
	by    H
	token lease.Token
	of    R
}

// departure identifies a lease that must leave a group.
type departure struct {
	id    lease.ID
	group lease.GroupID
}

// Leaving is a lease that leaves a group. AsOf is the At of the last group renewal that was
// reported to the lease's holder, or 0 if there was none.
type Leaving struct {
	ID    lease.ID
	Group lease.GroupID
	AsOf  lease.Instant
}

// RenewedGroup is the outcome of renewing a group.
type RenewedGroup struct {
	ID lease.GroupID
	// TTL is the TTL of the leases. It is 0 if the group has ended, in which case nothing was
	// renewed.
	TTL lease.TTL
	// At is the instant of the renewal on the lessor's clock.
	At lease.Instant
	// Left lists leases that are no longer in the group: see [lease.Lessor.Left].
	Left []lease.ID
}

// Round is a message to the lessor. First the leases in Leave leave their groups, and then the
// groups in Renew are renewed.
type Round struct {
	Number uint64
	// Fresh means that all groups of the agent end before this round.
	Fresh bool
	Leave []Leaving
	Renew []lease.GroupID
}

// Answer is the outcome of a request for a lease. If TTL is 0, the lease is no longer in a group,
// and the request must be sent to the lessor individually.
type Answer[R any] struct {
	ID  lease.ID
	Of  R
	TTL lease.TTL
}

// longestSilence caps how long a holder can be silent before its lease leaves the group. Below that
// cap, the time is two fifths of the TTL, which is also how long the lessor waits before it
// checkpoints a lease.
const longestSilence = lease.TTL(60_000)

func (g *agentGroup[H, R]) silentAt(k *kept[H, R]) instant {
	return plus(k.renewedAt, min(g.ttl/5*2, longestSilence))
}

// Want requests a round even if there is nothing to renew, so that leases can join in that round.
func (a *Agent[H, R]) Want() { a.wanted = true }

// Waits reports whether there is anything to send in the next round.
func (a *Agent[H, R]) Waits() bool {
	for _, g := range a.groups {
		if len(g.next) > 0 {
			return true
		}
	}
	return len(a.leave) > 0 || a.wanted
}

// LeavesWait reports whether any leases are waiting to leave in the next round.
func (a *Agent[H, R]) LeavesWait() bool { return len(a.leave) > 0 }

// Waiting returns the number of requests without an outcome.
func (a *Agent[H, R]) Waiting() int { return a.waiting }

// Keeps returns the TTL of a lease if it is in a group on behalf of this holder, and 0 otherwise.
// The token must be the one that the lease joined with, or 0 to match any. If Keeps returns a TTL,
// Renew accepts requests for the lease.
func (a *Agent[H, R]) Keeps(by H, id lease.ID, token lease.Token) lease.TTL {
	k := a.find(id)
	if k == nil || k.by != by || token != 0 && token != k.token {
		return 0
	}
	return k.group.ttl
}

// Renew accepts a request for a lease that the agent keeps.
func (a *Agent[H, R]) Renew(now instant, id lease.ID, of R) {
	k := a.find(id)
	k.renewedAt = now
	k.group.leases.MoveToBack(k.place)
	k.group.next = append(k.group.next, request[H, R]{id, k.by, k.token, of})
	a.waiting++
}

// Join is the lessor's report that a lease has joined a group because its holder renewed it
// individually. Rounds is how many rounds the lessor had answered by then.
type Join[H comparable] struct {
	By     H
	ID     lease.ID
	Token  lease.Token // from the request; 0 matches any token
	Group  lease.GroupID
	TTL    lease.TTL
	Rounds uint64
}

// Joined processes the report that a lease has joined a group.
func (a *Agent[H, R]) Joined(now instant, j Join[H]) {
	k := a.find(j.ID)
	if k != nil && k.group.id != j.Group {
		k = nil
	}
	d := departure{j.ID, j.Group}
	if _, leaves := a.leaving[d]; j.Rounds < a.answered || leaves && j.Rounds < a.sent {
		if k == nil { // otherwise a later join has already put it in the group
			a.toLeave(Leaving{ID: j.ID, Group: j.Group}) // otherwise the lessor might keep it alive
		}
		return
	}
	if k != nil {
		k.by, k.token, k.renewedAt = j.By, j.Token, now
		k.group.leases.MoveToBack(k.place)
		return
	}
	asOf := a.leave[d].AsOf
	delete(a.leave, d)
	a.part(j.ID)
	to := a.groups[j.Group]
	if to == nil {
		if a.groups == nil {
			a.groups = make(map[lease.GroupID]*agentGroup[H, R])
			a.leases = make(map[lease.ID]*kept[H, R])
		}
		to = &agentGroup[H, R]{id: j.Group, ttl: j.TTL}
		a.groups[j.Group] = to
	}
	k = &kept[H, R]{
		id: j.ID, by: j.By, token: j.Token, group: to, renewedAt: now, asOf: asOf,
	}
	k.place = to.leases.PushBack(k)
	a.leases[j.ID] = k
}

// Unwanted processes the report that a lease has joined a group although its holder has left in the
// meantime. The lease leaves the group unless another holder keeps it.
func (a *Agent[H, R]) Unwanted(j Join[H]) {
	if k := a.find(j.ID); k == nil || k.group.id != j.Group {
		a.toLeave(Leaving{ID: j.ID, Group: j.Group})
	}
}

// Leave removes a holder's lease from its group because it is no longer kept alive. It returns
// false if this holder has no such lease in a group.
func (a *Agent[H, R]) Leave(by H, id lease.ID) (ok bool) {
	k := a.find(id)
	if k == nil || k.by != by {
		return false
	}
	a.part(id)
	a.toLeave(Leaving{id, k.group.id, k.asOf})
	return true
}

func (a *Agent[H, R]) toLeave(l Leaving) {
	if a.leave == nil {
		a.leave = make(map[departure]Leaving)
	}
	d := departure{l.ID, l.Group}
	if _, ok := a.leave[d]; !ok {
		a.order = append(a.order, d)
	}
	l.AsOf = max(l.AsOf, a.leave[d].AsOf)
	a.leave[d] = l
}

// find returns a lease that is in a group, or nil if there is none.
func (a *Agent[H, R]) find(id lease.ID) *kept[H, R] {
	if k := a.leases[id]; k != nil && !k.group.over {
		return k
	}
	return nil
}

// forget drops leases of groups that have ended. It drops only some of them per call, since there
// may be many.
func (a *Agent[H, R]) forget() {
	for n := 0; n < MaxLeave && len(a.over) > 0; n++ {
		list := &a.over[0].leases
		if list.Len() == 0 {
			a.over = slices.Delete(a.over, 0, 1)
		} else if k := list.Remove(list.Front()).(*kept[H, R]); a.leases[k.id] == k {
			delete(a.leases, k.id)
		}
	}
}

// part removes the record of a lease.
func (a *Agent[H, R]) part(id lease.ID) *kept[H, R] {
	k := a.find(id)
	if k != nil {
		delete(a.leases, id)
		k.group.leases.Remove(k.place)
	}
	return k
}

// groupIDs returns the IDs of the groups in order. A leader resets its agent, which has no groups,
// in each step of the core, so that case must not allocate.
func (a *Agent[H, R]) groupIDs() []lease.GroupID {
	if len(a.groups) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(a.groups))
}

// Next returns the round to send now. ok is false if a round is already in flight, or if there is
// nothing to send.
func (a *Agent[H, R]) Next(now instant) (r Round, ok bool) {
	if a.Pending() {
		return Round{}, false
	}
	a.forget()
	if a.dropSilent(now); !a.Waits() {
		return Round{}, false
	}
	for _, id := range a.groupIDs() {
		if g := a.groups[id]; len(g.next) > 0 {
			g.asked, g.next = g.next, nil
			r.Renew = append(r.Renew, id)
		}
	}
	a.leaving = make(map[departure]Leaving)
	for ; len(a.order) > 0 && len(r.Leave) < MaxLeave; a.order = a.order[1:] {
		d := a.order[0]
		if l, ok := a.leave[d]; ok {
			r.Leave = append(r.Leave, l)
			a.leaving[d] = l
			delete(a.leave, d)
		}
	}
	if a.wanted = false; len(a.order) == 0 {
		a.order = nil
	}
	a.sent++
	r.Number, r.Fresh = a.sent, a.fresh
	return r, true
}

// dropSilent removes leases of silent holders from their groups, but no more than can leave in one
// round.
func (a *Agent[H, R]) dropSilent(now instant) {
	if at, ok := a.SilentAt(); !ok || at > now {
		return
	}
	for _, id := range a.groupIDs() {
		g := a.groups[id]
		for e := g.leases.Front(); e != nil && len(a.leave) < MaxLeave; e = g.leases.Front() {
			k := e.Value.(*kept[H, R])
			if g.silentAt(k) > now {
				break
			}
			a.Leave(k.by, k.id)
		}
	}
}

// SilentAt returns when the next lease must leave because its holder is silent.
func (a *Agent[H, R]) SilentAt() (at instant, ok bool) {
	for _, g := range a.groups {
		if e := g.leases.Front(); e != nil {
			if its := g.silentAt(e.Value.(*kept[H, R])); !ok || its < at {
				at, ok = its, true
			}
		}
	}
	return at, ok
}

// Answered processes the outcome of a round and returns the outcomes of requests. It ignores any
// outcome that does not belong to the round in flight.
func (a *Agent[H, R]) Answered(number uint64, groups []RenewedGroup) (out []Answer[R]) {
	if number != a.sent || !a.Pending() {
		return nil
	}
	a.answered, a.fresh, a.leaving = a.sent, false, nil
	for _, r := range groups {
		g := a.groups[r.ID]
		if g == nil {
			continue
		}
		for _, id := range r.Left {
			k := a.find(id)
			if k == nil || k.group != g {
				continue
			}
			a.part(id)
			a.toLeave(Leaving{id, g.id, k.asOf}) // it may have left and joined again
		}
		if r.TTL != g.ttl {
			out = a.dissolve(g, out)
			continue
		}
		for _, n := range g.asked {
			x := Answer[R]{ID: n.id, Of: n.of}
			if k := a.find(n.id); k != nil && k.group == g && k.by == n.by && k.token == n.token {
				k.asOf, x.TTL = r.At, r.TTL
			}
			out = append(out, x)
		}
		g.asked = nil
	}
	for _, id := range a.groupIDs() {
		if g := a.groups[id]; len(g.asked) > 0 { // the answer does not list the group
			out = a.dissolve(g, out)
		} else if g.leases.Len() == 0 && len(g.next) == 0 {
			delete(a.groups, id)
		}
	}
	a.waiting -= len(out)
	return out
}

// dissolve removes a group and fails the requests that are waiting for it.
func (a *Agent[H, R]) dissolve(g *agentGroup[H, R], out []Answer[R]) []Answer[R] {
	g.over = true
	a.over = append(a.over, g)
	for _, n := range slices.Concat(g.asked, g.next) {
		out = append(out, Answer[R]{ID: n.id, Of: n.of})
	}
	g.asked, g.next = nil, nil
	delete(a.groups, g.id)
	return out
}

// Reset ends all groups, because a round timed out or the lessor has changed. It returns a failed
// answer for every request that has no outcome yet.
func (a *Agent[H, R]) Reset() (out []Answer[R]) {
	for _, id := range a.groupIDs() {
		for _, n := range slices.Concat(a.groups[id].asked, a.groups[id].next) {
			out = append(out, Answer[R]{ID: n.id, Of: n.of})
		}
	}
	*a = Agent[H, R]{sent: a.sent, answered: a.sent, fresh: true}
	return out
}

// Pending reports whether a round is in flight.
func (a *Agent[H, R]) Pending() bool { return a.sent != a.answered }
