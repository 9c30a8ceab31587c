package holder

import (
	"container/list"
	"maps"
	"slices"

	"leasehold.dev/lease"
)

// An Agent keeps leases alive for holders that renew through it: the clients of a relay, or of a
// follower. It renews them in groups of the lessor, which is notified about a lease only when it
// joins or leaves.
//
// The agent itself makes no promises. A holder's request waits for a round, which is a renewal of
// groups that is sent after the request arrived, and gets that round's outcome. A lease whose
// holder falls silent leaves its group as of the last round that answered a request, so the lessor
// ends it when it would have ended without the agent.
//
// Only one round is in flight at a time, and the lessor processes each once. With each join, the
// lessor reports how many rounds it had answered; a join does not count if a later answer may have
// revoked it. If a round gets no answer, all groups end, and the next round reports that to the
// lessor (Reset). Thus the order in which answers arrive does not matter.
//
// H identifies a holder, and R is the caller's request. An Agent is pure, like a Set. The zero
// Agent is empty.
type Agent[H comparable, R any] struct {
	leases map[lease.ID]*kept[H, R]
	groups map[lease.GroupID]*agentGroup[H, R]
	// over holds groups that have ended; leases may still contain some of their leases. See forget.
	over     []*agentGroup[H, R]
	sent     uint64 // the last round
	answered uint64 // the last answered round; equal to sent, or one less
	fresh    bool   // the lessor may still have groups that have ended here
	// leave holds the leases that will leave their groups with the next round, and leaving those
	// that leave with the round in flight.
	leave, leaving map[departure]Leaving
	order          []departure // the keys of leave by arrival, and some that are no longer in it
	waiting        int         // requests without an outcome
	wanted         bool        // see Want
}

// kept is a lease that is in a group.
type kept[H comparable, R any] struct {
	id        lease.ID
	by        H
	token     lease.Token // of the request that joined, 0 for any
	group     *agentGroup[H, R]
	renewedAt instant       // when its holder last requested its renewal
	asOf      lease.Instant // see Leaving
	place     *list.Element // in the group's leases
}

// agentGroup is a group of the lessor.
type agentGroup[H comparable, R any] struct {
	id     lease.GroupID
	ttl    lease.TTL
	over   bool            // it has ended
	leases list.List       // of *kept, by renewedAt
	asked  []request[H, R] // answered by the round in flight
	next   []request[H, R] // answered by the round after that
}

// request is a holder's request. A round answers it only if the lease is still kept for that holder
// under that token: another holder may have taken over the lease since.
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

// Leaving is a lease that leaves a group. AsOf is the At of the last renewal of the group that was
// reported to its holder, or 0.
type Leaving struct {
	ID    lease.ID
	Group lease.GroupID
	AsOf  lease.Instant
}

// RenewedGroup is the outcome of a group's renewal.
type RenewedGroup struct {
	ID lease.GroupID
	// TTL is that of the leases, or 0 if the group has ended and nothing was renewed.
	TTL lease.TTL
	// At is the lessor's instant of the renewal.
	At lease.Instant
	// Left lists leases that are no longer in the group; see [lease.Lessor.Left].
	Left []lease.ID
}

// Round is a message to the lessor: the leases in Leave leave their groups, and then the groups in
// Renew are renewed.
type Round struct {
	Number uint64
	// Fresh means that all groups of the agent end before this round.
	Fresh bool
	Leave []Leaving
	Renew []lease.GroupID
}

// Answer is the outcome of a request for a lease. A TTL of 0 means that the lease is no longer in a
// group, so the request must be sent to the lessor individually.
type Answer[R any] struct {
	ID  lease.ID
	Of  R
	TTL lease.TTL
}

// A lease leaves its group when its holder has been silent for as long as the lessor waits before
// it checkpoints a lease: two fifths of the TTL, at most longestSilence.
const longestSilence = lease.TTL(60_000)

func (g *agentGroup[H, R]) silentAt(k *kept[H, R]) instant {
	return plus(k.renewedAt, min(g.ttl/5*2, longestSilence))
}

// Want requests a round even if there is nothing to renew, so that leases can join with it.
func (a *Agent[H, R]) Want() { a.wanted = true }

// Waits reports whether there is something to send in the next round.
func (a *Agent[H, R]) Waits() bool {
	for _, g := range a.groups {
		if len(g.next) > 0 {
			return true
		}
	}
	return len(a.leave) > 0 || a.wanted
}

// LeavesWait reports whether leases wait to leave with the next round.
func (a *Agent[H, R]) LeavesWait() bool { return len(a.leave) > 0 }

// Waiting returns the number of requests without an outcome.
func (a *Agent[H, R]) Waiting() int { return a.waiting }

// Keeps returns the TTL of a lease that is in a group and was renewed by its holder with the same
// token, or a request without one; Renew then takes requests for it. Otherwise it returns 0.
func (a *Agent[H, R]) Keeps(by H, id lease.ID, token lease.Token) lease.TTL {
	k := a.find(id)
	if k == nil || k.by != by || token != 0 && token != k.token {
		return 0
	}
	return k.group.ttl
}

// Renew takes a request for a lease that the agent keeps.
func (a *Agent[H, R]) Renew(now instant, id lease.ID, of R) {
	k := a.find(id)
	k.renewedAt = now
	k.group.leases.MoveToBack(k.place)
	k.group.next = append(k.group.next, request[H, R]{id, k.by, k.token, of})
	a.waiting++
}

// Join is the lessor's message that a lease has joined a group because its holder renewed it
// individually, and how many rounds the lessor had answered by then.
type Join[H comparable] struct {
	By     H
	ID     lease.ID
	Token  lease.Token // of the request, 0 for any
	Group  lease.GroupID
	TTL    lease.TTL
	Rounds uint64
}

// Joined processes the message that a lease has joined a group.
func (a *Agent[H, R]) Joined(now instant, j Join[H]) {
	k := a.find(j.ID)
	if k != nil && k.group.id != j.Group {
		k = nil
	}
	d := departure{j.ID, j.Group}
	if _, leaves := a.leaving[d]; j.Rounds < a.answered || leaves && j.Rounds < a.sent {
		if k == nil { // otherwise a later join has shown that it is in the group
			a.toLeave(Leaving{ID: j.ID, Group: j.Group}) // or the lessor might keep it
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

// Unwanted processes the message that a lease has joined a group for a holder that has left
// meanwhile. The lease leaves unless another holder keeps it.
func (a *Agent[H, R]) Unwanted(j Join[H]) {
	if k := a.find(j.ID); k == nil || k.group.id != j.Group {
		a.toLeave(Leaving{ID: j.ID, Group: j.Group})
	}
}

// Leave takes a holder's lease out of its group, because nothing keeps it alive any more. It
// returns false if the lease is in no group.
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

// find returns a lease that is in a group, nil if there is none.
func (a *Agent[H, R]) find(id lease.ID) *kept[H, R] {
	if k := a.leases[id]; k != nil && !k.group.over {
		return k
	}
	return nil
}

// forget drops leases of groups that have ended: not all at once, since there may be very many.
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

// Next returns the round to send now. ok is false if one is in flight, or if there is nothing to
// send.
func (a *Agent[H, R]) Next(now instant) (r Round, ok bool) {
	if a.Pending() {
		return Round{}, false
	}
	a.forget()
	if a.dropSilent(now); !a.Waits() {
		return Round{}, false
	}
	for _, id := range slices.Sorted(maps.Keys(a.groups)) {
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

// dropSilent removes leases with silent holders from their groups, as many as leave with a round.
func (a *Agent[H, R]) dropSilent(now instant) {
	if at, ok := a.SilentAt(); !ok || at > now {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(a.groups)) {
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

// Answered processes the outcome of a round, and returns the answered requests. It ignores answers
// to any round but the one in flight.
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
			a.toLeave(Leaving{id, g.id, k.asOf}) // it may have joined again since it left
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
	for _, id := range slices.Sorted(maps.Keys(a.groups)) {
		if g := a.groups[id]; len(g.asked) > 0 { // the answer does not list it
			out = a.dissolve(g, out)
		} else if g.leases.Len() == 0 && len(g.next) == 0 {
			delete(a.groups, id)
		}
	}
	a.waiting -= len(out)
	return out
}

// dissolve removes a group, and fails the requests that wait for it.
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

// Reset ends all groups, because a round timed out or the lessor has changed. It returns the
// requests without an outcome.
func (a *Agent[H, R]) Reset() (out []Answer[R]) {
	for _, id := range slices.Sorted(maps.Keys(a.groups)) {
		for _, n := range slices.Concat(a.groups[id].asked, a.groups[id].next) {
			out = append(out, Answer[R]{ID: n.id, Of: n.of})
		}
	}
	*a = Agent[H, R]{sent: a.sent, answered: a.sent, fresh: true}
	return out
}

// Pending reports whether a round has no answer yet.
func (a *Agent[H, R]) Pending() bool { return a.sent != a.answered }
