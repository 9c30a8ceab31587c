package replica

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// checkpointEvery is how long silent leases gather for one entry, in
// milliseconds, unless there are more than one entry holds. Nobody waits for it,
// but a leader that dies meanwhile makes them last that much longer.
const checkpointEvery = 100

// expire proposes what the tracker finds due: leases past their expiry, and
// the remaining time of silent ones. One entry of each kind is under way at a
// time, and the next is cut when it has been applied, so that however many
// leases end together, foreground commands wait for one batch at most.
func (r *Replica) expire() {
	if !r.primary || r.timers.refresh {
		return
	}
	if !r.timers.expiring {
		if due := r.expireApart(r.due()); len(due) > 0 {
			r.timers.expiring = true
			r.timers.oldest = r.now - lease.Instant(due[0].Late)
			c := &fsm.Expire{Term: r.term, Leases: due}
			decided := r.now
			r.proposeInternal(c, func(applied bool) { r.expired(due, decided, applied) })
		}
	}
	if !r.timers.checkpointing && r.now >= r.timers.silence {
		if silent := r.lessor.Silent(r.cfg.MaxExpire); len(silent) > 0 {
			r.timers.checkpointing = true
			if len(silent) < r.cfg.MaxExpire {
				r.timers.silence = r.now + checkpointEvery
			}
			c := &fsm.Checkpoint{Term: r.term, Leases: silent}
			r.proposeInternal(c, func(applied bool) { r.checkpointed(silent, applied) })
		}
	}
}

// refresh does what Refresh asked for when nothing that was decided before is in
// the log any more: a lease that is alive again while its Expire is under way
// could be renewed and expire all the same (T5), and one whose clearing entry is
// under way would end by the checkpoint although its holder was heard.
func (r *Replica) refresh() {
	if t := r.timers; r.primary && t.refresh && !t.expiring && !t.checkpointing &&
		t.clearing == 0 && len(r.gate.apart) == 0 {
		r.demote()
		r.promote()
	}
}

// due returns the leases that the next entry expires: at most MaxExpire, and
// so few that they have at most twice as many keys, unless one alone has more
// (T14). The others stay due.
func (r *Replica) due() []lease.Due {
	due := r.lessor.Due(r.cfg.MaxExpire)
	keys := 0
	for i, d := range due {
		keys += r.lessor.KeyCount(d.ID)
		if i > 0 && keys > 2*r.cfg.MaxExpire {
			r.lessor.Reinstate(ids(due[i:], func(d lease.Due) lease.ID { return d.ID }))
			return due[:i:i]
		}
	}
	return due
}

// expired learns the outcome of an expiry. A proposal that Raft did not take
// is certain to have no effect, so its leases are alive again and due again;
// never on a timeout, which would leave the outcome open (T5, T12).
func (r *Replica) expired(due []lease.Due, decided lease.Instant, applied bool) {
	r.timers.expiring = false
	for i := range due {
		if applied {
			r.out.Late = append(r.out.Late, due[i].Late+lease.TTL(r.now-decided))
		}
	}
	if !applied && r.primary {
		r.lessor.Reinstate(ids(due, func(d lease.Due) lease.ID { return d.ID }))
	}
	r.refresh()
	r.unpark()
}

func (r *Replica) checkpointed(silent []lease.Checkpoint, applied bool) {
	r.timers.checkpointing = false
	if !applied && r.primary {
		r.lessor.Reinstate(ids(silent, func(c lease.Checkpoint) lease.ID { return c.ID }))
	}
	r.refresh()
}

func ids[T any](in []T, id func(T) lease.ID) []lease.ID {
	out := make([]lease.ID, len(in))
	for i := range in {
		out[i] = id(in[i])
	}
	return out
}
