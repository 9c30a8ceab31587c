package sim

import (
	"slices"

	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// Half of the runs with groups have relays. A relay carries keepers' streams to a member and keeps
// their leases alive with rounds. It does in virtual time what package relay does around a
// holder.Agent.

// relays holds the relays of a run.
type relays []*relay

// relay is a relay together with its machine.
type relay struct {
	w     *world
	clock clock
	// links holds the connections to members. New streams use the last connection unless it has
	// ended.
	links  []*uplink
	cut    bool // all messages in both directions are lost
	paused Time // the end of the current pause
	lag    Time // mean additional delay of messages to and from members
}

// uplink is a relay's connection to a process. Each connection has its own Agent. Rounds arrive in
// the order in which they were sent, and so do the renewals of each client. Other messages may be
// reordered. Once a message is lost, all later messages are lost too.
type uplink struct {
	*relay
	waker
	id     replica.Keeper
	member uint64
	proc   *process
	agent  holder.Agent[*stream, *call]
	last   Time // when the last round arrives
	late   Time // when the in-flight round times out
	lost   Time // when messages began to be lost, or Never
	over   bool
}

const (
	roundTime  = 2 * Second
	relayReset = 3 * Second // how long a relay takes to detect a dead connection
)

// newRelays creates the relays of a run.
func newRelays(w *world) (all relays) {
	for range w.p.Renewing.Relays {
		r := &relay{w: w, clock: w.clock()}
		all = append(all, r)
		r.follow()
		r.disturbOften()
	}
	return all
}

// draw chooses the connection for a keeper's next stream. It returns nil if the stream uses no
// relay.
func (all relays) draw(w *world) *uplink {
	if len(all) == 0 || w.chance(4) {
		return nil
	}
	return all[w.rng.IntN(len(all))].link()
}

// link returns the connection for new streams, or nil if there is none.
func (r *relay) link() *uplink {
	if n := len(r.links); n > 0 && !r.links[n-1].over {
		return r.links[n-1]
	}
	return nil
}

// follow keeps the relay connected, usually to the leader.
func (r *relay) follow() {
	w := r.w
	w.after(w.exp(300*Millisecond), r.follow)
	if r.paused > w.now {
		return
	}
	for _, u := range r.links {
		if w.now-relayReset > u.lost {
			u.end()
		}
	}
	to := w.leader()
	if u := r.link(); u != nil && (to == nil || u.proc == to.proc && !w.chance(30)) || r.cut {
		return
	}
	if to == nil || w.chance(6) {
		to = w.members[w.anyMember()-1]
	}
	if to.proc == nil {
		return
	}
	w.seq++
	u := &uplink{relay: r, id: replica.Keeper(w.seq), member: to.id, proc: to.proc, lost: Never}
	u.waker = waker{w, Never, u.step}
	r.links = append(slices.DeleteFunc(r.links, func(u *uplink) bool { return u.over }), u)
}

// crash ends the relay's process, which restarts after d.
func (r *relay) crash(d Time) {
	for _, u := range r.links {
		u.end()
	}
	r.paused = r.w.now + d
}

// lost ends the connections to a process that has ended. If silent is set, the relays are not
// notified.
func (all relays) lost(p *process, silent bool) {
	for _, r := range all {
		for _, u := range r.links {
			switch {
			case u.proc != p:
			case silent:
				u.lose()
			default:
				r.w.after(r.w.exp(r.w.p.Delay), u.end)
			}
		}
	}
}

// lose drops the messages in flight and all later ones.
func (u *uplink) lose() { u.lost = min(u.lost, u.w.now) }

// down reports whether the connection is losing messages.
func (u *uplink) down() bool {
	if u.cut || u.proc.dead {
		u.lose()
	}
	return u.lost != Never
}

// end ends the connection and the clients' streams over it. The process is notified after the last
// round arrives, or never.
func (u *uplink) end() {
	if u.over {
		return
	}
	w := u.w
	u.over = true
	for _, c := range w.clients {
		if s := c.keeper.stream; s != nil && s.via == u {
			for _, q := range slices.Clone(c.keeper.flying) {
				w.after(w.exp(w.p.Delay), func() {
					if !c.cut && q.stream == s {
						q.end(Unknown, errReset)
					}
				})
			}
		}
	}
	if !u.down() {
		w.at(max(w.now+w.exp(w.p.Delay), u.last), func() {
			leaveGroups(u.proc, endOf(u.id))
		})
	}
}

// endOf returns the message reporting the end of a stream.
func endOf(id replica.Keeper) *replica.Renewals {
	return &replica.Renewals{GroupRenewals: replica.GroupRenewals{Keeper: id, End: true}}
}

// leaveGroups queues a message about groups for a process.
func leaveGroups(p *process, b *replica.Renewals) {
	if !p.dead {
		p.mail.groups = append(p.mail.groups, b)
		p.wake(p.w.now)
	}
}

// hop returns a random delay for a message between the relay and the member.
func (u *uplink) hop() Time { return u.w.p.Delay/4 + u.w.exp(u.w.p.Delay) + u.w.exp(u.lag) }

// now reads the relay's clock.
func (u *uplink) now() lease.Instant { return u.clock.instant(u.w.now) }

// take accepts the renewals of one client message. If the agent keeps the leases of all these
// renewals alive, the renewals wait for a round. Otherwise they are forwarded to the member.
func (u *uplink) take(calls []*call) {
	s, w := calls[0].stream, u.w
	switch {
	case calls[0].vanishes():
		return
	case u.paused > w.now:
		w.at(u.paused, func() { u.take(calls) })
		return
	}
	if slices.ContainsFunc(calls, func(q *call) bool {
		return q.op.Kind != opRenew || u.agent.Keeps(s, q.op.Lease, q.op.Request.Token) == 0
	}) {
		u.pass(calls...)
		return
	}
	linger := 500 * Millisecond
	for _, q := range calls {
		ttl := u.agent.Keeps(s, q.op.Lease, q.op.Request.Token)
		linger = min(linger, Time(ttl)*Millisecond/20)
		u.agent.Renew(u.now(), q.op.Lease, q)
	}
	u.wake(w.now + linger)
}

// pass forwards a client's renewals to the member.
func (u *uplink) pass(calls ...*call) {
	s := calls[0].stream
	s.passed = max(s.passed, u.w.now+u.hop())
	u.w.at(s.passed, func() {
		if u.down() {
			return
		}
		for _, q := range calls {
			q.request()
		}
	})
}

// step sends a round, or abandons a round that has timed out.
func (u *uplink) step() {
	w := u.w
	switch {
	case u.over:
		return
	case u.paused > w.now:
		u.wake(u.paused)
		return
	}
	if u.agent.Pending() && w.now >= u.late {
		w.cover["round given up"]++
		u.answer(u.agent.Reset(), nil)
	}
	if r, ok := u.agent.Next(u.now()); ok {
		u.late = w.now + roundTime
		u.send(r)
	}
	u.arm()
}

// arm schedules the next step that is not triggered by a request.
func (u *uplink) arm() {
	switch at, ok := u.agent.SilentAt(); {
	case u.agent.Pending():
		u.wake(u.late)
	case u.agent.LeavesWait():
		u.wake(u.w.now)
	case ok:
		u.wake(u.clock.after(at))
	}
}

// round is the Owner of the replica.Renewals of a round.
type round struct {
	*uplink
	asOf uint64 // the member's applied index when it processed the round
}

func (u *uplink) send(r holder.Round) {
	b := &replica.Renewals{Owner: &round{uplink: u}}
	b.Keeper, b.Round = u.id, r
	u.w.cover["lease left a relay's group"] += len(r.Leave)
	u.last = max(u.last, u.w.now+u.hop())
	u.w.at(u.last, func() {
		if !u.down() {
			leaveGroups(u.proc, b)
		}
	})
}

// hear delivers a message from the member to the relay.
func (u *uplink) hear(take func()) {
	if u.down() {
		return
	}
	var arrive func()
	arrive = func() {
		switch {
		case u.over || u.down():
		case u.paused > u.w.now:
			u.w.at(u.paused, arrive)
		default:
			take()
			u.step()
		}
	}
	u.w.after(u.hop(), arrive)
}

// outcome sends the outcome of a round to the relay.
func (r *round) outcome(b *replica.Renewals) {
	number, groups := b.Number, slices.Clone(b.Renewed)
	r.hear(func() { r.answer(r.agent.Answered(number, groups), r) })
	for _, l := range b.Leave {
		compareHolders(r.w, l.ID)
	}
}

// joined notifies the relay of the leases that joined its groups.
func (u *uplink) joined(b *replica.Renewals) {
	var list []holder.Join[*stream]
	for i, q := range b.Owner.(renewals) {
		if ttl := b.TTLs[i]; ttl > 0 && b.Joined[i] != 0 {
			list = append(list, holder.Join[*stream]{
				By: q.stream, ID: q.op.Lease, Token: q.op.Request.Token, Group: b.Joined[i], TTL: ttl,
				Rounds: b.Rounds,
			})
		}
	}
	if len(list) == 0 {
		return
	}
	u.hear(func() {
		for _, j := range list {
			if j.By.left {
				u.w.cover["lease joined a relay's group for nobody"]++
				u.agent.Unwanted(j)
				continue
			}
			u.w.cover["lease joined a relay's group"]++
			u.agent.Joined(u.now(), j)
			j.By.kept = append(j.By.kept, j.ID)
		}
	})
}

// leave removes a client's leases from their groups after its stream has ended.
func (u *uplink) leave(s *stream) {
	if u.paused > u.w.now {
		u.w.at(u.paused, func() { u.leave(s) })
		return
	}
	s.left = true
	for _, id := range s.kept {
		u.agent.Leave(s, id)
	}
	u.step()
}

// answer answers the renewals covered by a round's outcome and forwards the others to the member.
func (u *uplink) answer(list []holder.Answer[*call], by *round) {
	for _, a := range list {
		q := a.Of
		if a.TTL == 0 {
			u.w.cover["renewal passed on after a round"]++
			u.pass(q)
			continue
		}
		u.w.cover["renewal answered by a round"]++
		q.op.TTL, q.op.Groups.extended = a.TTL, []lease.ID{a.ID}
		if by != nil {
			q.op.Caller, q.op.AsOf = q.c.caller(u.proc), by.asOf
		}
		q.reply(Done, nil)
	}
}

// disturbOften injects faults that affect the relay at random times.
func (r *relay) disturbOften() {
	w := r.w
	if w.p.Faults == 0 {
		return
	}
	w.after(w.exp(w.p.Faults*Time(w.p.Renewing.Relays)), func() {
		if !w.injector.calm {
			r.disturb(&w.injector)
			r.disturbOften()
		}
	})
}

func (r *relay) disturb(n *injector) {
	w, d := r.w, n.length()
	switch w.rng.IntN(4) {
	case 0:
		n.note(Fault{Kind: faultRelayCrash})
		r.crash(min(d, w.exp(Second)))
	case 1:
		d = min(d, w.between(50*Millisecond, 5*Second))
		n.note(Fault{Kind: faultRelayPause, Until: w.now + d})
		r.paused = max(r.paused, w.now+d)
	case 2:
		n.note(Fault{Kind: faultRelayCut, Until: w.now + d})
		r.cut = true
		n.lasting(d, func() { r.cut = false })
	default:
		n.note(Fault{Kind: faultRelaySlow, Until: w.now + d})
		r.lag = w.between(20*Millisecond, 2*Second)
		n.lasting(d, func() { r.lag = 0 })
	}
}
