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
	if !r.timers.checkpointing && (r.now >= r.timers.silence || r.timers.afterAll != nil) {
		r.checkpoint()
	}
}

// checkpoint replicates the remaining time of leases that are silent now.
func (r *Replica) checkpoint() {
	silent := r.lessor.Silent(r.cfg.MaxExpire)
	if len(silent) == 0 {
		r.checkpointedAll()
		return
	}
	r.timers.checkpointing = true
	if len(silent) < r.cfg.MaxExpire {
		r.timers.silence = r.now + checkpointEvery
	}
	c := &fsm.Checkpoint{Term: r.term, Leases: silent}
	r.proposeInternal(c, func(applied bool) { r.checkpointed(silent, applied) })
}

// CheckpointAll replicates what now remains of each lease that is known to be silent, because
// this leader is about to stop: if all members do, only what is in the log is remembered. It
// calls done once that is so, or when this member does not lead.
func (r *Replica) CheckpointAll(done func()) {
	if !r.primary {
		done()
		return
	}
	r.lessor.CheckpointAll()
	r.timers.afterAll = done
}

func (r *Replica) checkpointedAll() {
	if done := r.timers.afterAll; done != nil {
		r.timers.afterAll = nil
		done()
	}
}

// refresh does what Refresh asked for when nothing that was decided before is in
// the log any more: a lease that is alive again while its Expire is under way
// could be renewed and expire all the same (T5), and one whose clearing entry is
// under way would end by the checkpoint although its holder was heard.
func (r *Replica) refresh() {
	if t := r.timers; r.primary && t.refresh && !t.expiring && !t.checkpointing &&
		t.clearing == 0 && !r.gate.ending() {
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
			r.lessor.Reinstate(due[i:])
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
		r.lessor.Reinstate(due)
	}
	r.refresh()
	for i := range due {
		r.unpark(due[i].ID)
	}
}

func (r *Replica) checkpointed(silent []lease.Checkpoint, applied bool) {
	r.timers.checkpointing = false
	if !applied && r.primary {
		r.lessor.Unreport(silent)
	}
	r.refresh()
}
