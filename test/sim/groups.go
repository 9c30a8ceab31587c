package sim

import (
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// This file contains the streams that keepers use to renew leases in groups, in runs with groups.

// stream is one connection of a keeper to a process. Requests stay in order, but answers can be
// reordered. Once a message is lost, all later messages are lost too.
type stream struct {
	id     replica.Keeper // ID of the stream or of its relay connection
	member uint64
	proc   *process // nil until a request arrives
	lag    Time     // mean additional delay in both directions
	last   Time     // arrival of the last request
	lost   bool     // all messages are lost
	over   bool     // the client sends no more messages
	// via is the relay connection that carries the stream, or nil. kept holds the leases that
	// joined groups. left is set once the relay has detected the end of the stream. passed is the
	// arrival of the last forwarded renewal.
	via    *uplink
	kept   []lease.ID
	left   bool
	passed Time
}

// renewedGroups is a keeper's request to renew groups, with the outcome.
type renewedGroups struct {
	holder.Batch
	// kept holds the leases that the client keeps alive.
	kept    []lease.ID
	renewed []holder.RenewedGroup
	// extended holds the leases whose validity the client extended because of the answer.
	extended []lease.ID
}

// relayed reports whether a renewal went through a relay. byRound reports whether the outcome of a
// round answered it.
func (op *Op) relayed() bool { return op.Kind == opRenew && op.Groups != nil }
func (op *Op) byRound() bool { return op.relayed() && len(op.Groups.extended) > 0 }

// connect returns the stream for batches, or nil if the run does not renew in groups.
func (k *keeper) connect() *stream {
	w := k.c.w
	if !w.p.Renewing.Groups {
		return nil
	}
	if s := k.stream; s != nil && !s.over && (s.member == k.c.at || s.via != nil && !s.via.over) {
		return s
	}
	k.disconnect()
	w.seq++
	k.stream = &stream{id: replica.Keeper(w.seq), member: k.c.at}
	if u := w.relays.draw(w); u != nil {
		k.stream = &stream{id: u.id, member: u.member, proc: u.proc, via: u}
	}
	if w.chance(3) {
		k.stream.lag = w.between(20*Millisecond, Second)
	}
	k.set.Moved()
	return k.stream
}

// disconnect ends the stream. The process is notified after the last request arrives, or never if
// messages are lost.
func (k *keeper) disconnect() {
	s, w := k.stream, k.c.w
	if s == nil || s.over {
		return
	}
	s.over = true
	if k.c.cut || s.lost {
		return
	}
	w.at(max(w.now+w.exp(w.p.Delay), s.last), func() {
		switch {
		case s.via != nil:
			s.via.leave(s)
		case s.proc != nil:
			leaveGroups(s.proc, endOf(s.id))
		}
	})
}

// arrives returns when a request sent over the stream arrives. The transfer takes at least d.
func (s *stream) arrives(w *world, d Time) Time {
	if s == nil {
		return w.now + d
	}
	s.last = max(s.last, w.now+d+w.exp(s.lag))
	return s.last
}

// lose drops the messages in flight and all later ones.
func (s *stream) lose() {
	if s != nil {
		s.lost = true
	}
}

func (s *stream) isLost() bool { return s != nil && (s.lost || s.via != nil && s.via.over) }

// reaches reports whether a request reaches a process. It does not if the process has restarted
// since the stream was opened.
func (s *stream) reaches(p *process) bool {
	if s == nil {
		return true
	}
	if s.proc == nil {
		s.proc = p
	}
	return s.proc == p
}

// failed handles an unanswered request that was sent over the stream.
func (k *keeper) failed(q *call) {
	s := q.stream
	switch {
	case s == nil || q.op.Outcome == Done || s != k.stream:
	case q.op.Err == errReset || q.op.Err == errRefused || s.lost || k.c.w.chance(3):
		k.c.w.cover["stream of renewals abandoned"]++
		k.disconnect()
	}
}

// admit reports whether a renewal is permitted, and records the state of users and roles that it
// used to decide.
func (q *call) admit(p *process) bool {
	if q.op.Kind != opRenew || q.admitted {
		return true
	}
	q.admitted, q.by = true, p.view.Access
	return !p.w.p.Users || !q.by.Enabled() || q.mayRenew(p)
}

// admitEarly is like admit, but runs in the stream's goroutine and uses the member's published
// state.
func (q *call) admitEarly(p *process) bool {
	early := q.stream != nil && p.view.Index == p.r.Machine().Index()
	return !early || q.admit(p)
}

// newGroupRenewals builds a keeper's request to renew groups.
func newGroupRenewals(q *call) *replica.Renewals {
	r := &replica.Renewals{Owner: renewals{q}}
	g := q.op.Groups
	r.Keeper, r.Renew = q.stream.id, g.Groups
	for _, id := range g.Leave {
		r.Leave = append(r.Leave, holder.Leaving{ID: id, AsOf: lease.LastRenewal})
	}
	return r
}

// accessOf returns the oldest state of users and roles under which any of the calls was admitted.
func accessOf(calls []*call) *access.State {
	oldest := calls[0].by
	for _, q := range calls {
		if q.by.Revision() < oldest.Revision() {
			oldest = q.by
		}
	}
	return oldest
}

// answerGroups answers a keeper's request to renew groups.
func answerGroups(b *replica.Renewals) {
	if r, ok := b.Owner.(*round); ok {
		r.outcome(b)
		return
	}
	q := b.Owner.(renewals)[0]
	cover := q.c.w.cover
	q.op.Groups.renewed = b.Renewed
	cover["lease asked to leave its group"] += len(b.Leave)
	for _, g := range b.Renewed {
		cover["lease left its group unasked"] += len(g.Left)
		if g.TTL > 0 {
			cover["group renewed"]++
		} else {
			cover["group found to be over"]++
		}
	}
	q.reply(Done, nil)
}

// joined records the group that a lease has joined.
func (k *keeper) joined(q *call) {
	if q.joined != 0 && q.op.Outcome == Done {
		k.c.w.cover["lease joined a group"]++
		k.set.Joined(q.token, q.op.Lease, q.joined)
	}
}

// groupsRenewed handles the outcome of a batch that renews groups.
func (k *keeper) groupsRenewed(seq uint64, op *Op) {
	k.advance()
	g := op.Groups
	before := make(map[*session]Time)
	for _, s := range k.sessions {
		before[s] = s.until()
	}
	if op.Outcome != Done {
		k.set.LeaveAgain(seq, g.Leave)
	}
	for i, id := range g.Groups {
		if op.Outcome != Done {
			k.set.GroupUnknown(seq, id)
			continue
		}
		r := g.renewed[i]
		k.set.GroupRenewed(seq, id, r.TTL, r.Left)
	}
	k.changed()
	for _, s := range slices.Clone(k.sessions) {
		s.refresh()
		if s.until() > before[s] {
			g.extended = append(g.extended, s.terms.ID)
		}
	}
}

// checkRights checks A1 for leases that were renewed together with their groups. A permission that
// depends on a lease's keys is checked when the lease joins a group.
func (g *renewedGroups) checkRights(f *facts, op *Op, r *modelRights) {
	for _, id := range g.extended {
		l := f.incarnationAt(id, int(op.AsOf)-firstIndex)
		if !r.enabled || l == nil || l.Name == "" && l.Principal == "" {
			continue
		}
		if !r.holds(fresh(op.Caller, r), &l.modelLease, true, nil) {
			f.violate(op.End, "A1", "operation %d of client %d (%s) renewed lease %d with its group at "+
				"member %d, which had applied %d", op.ID, op.Client, op.Caller.User, id, op.Member, op.AsOf)
		}
	}
}

// groupTTLs lists the TTLs used in runs with groups. There are only a few, so that each group has
// several leases.
var groupTTLs = [...]lease.TTL{700, 2500, 9000}

// gather keeps several leases with the same TTL alive, usually at the leader. It sometimes gives up
// one of them.
func gather(t *thread) {
	w, ttl := t.c.w, t.c.w.ttl()
	var held []*session
	for {
		t.think()
		switch w.rng.IntN(6) {
		case 0, 1:
			t.toLeader()
		case 2:
			// Messages in flight may arrive after messages sent on the next stream.
			t.c.keeper.disconnect()
		}
		held = slices.DeleteFunc(held, func(s *session) bool { return s.ended || s.quiet })
		if len(held) < 2 || len(held) < 5 && w.chance(2) {
			if s := t.grant(lease.Terms{TTL: ttl}); s != nil {
				held = append(held, s)
			}
			continue
		}
		switch s := held[w.rng.IntN(len(held))]; w.rng.IntN(6) {
		case 0, 1:
			s.end() // without notifying the member
		case 2:
			t.revoke(s)
		case 3:
			s.rest()
		case 4:
			t.changeTTL(s)
		default:
			t.renew(s)
		}
	}
}
