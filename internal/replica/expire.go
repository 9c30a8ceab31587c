package replica

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// expire proposes what the tracker finds due: leases past their expiry, and
// the remaining time of silent ones. One entry of each kind is under way at a
// time, and the next is cut when it has been applied, so that however many
// leases end together, foreground commands wait for one batch at most.
func (r *Replica) expire() {
	if !r.primary {
		return
	}
	if !r.expiry.busy {
		if due := r.due(); len(due) > 0 {
			r.expiry.busy = true
			c := &fsm.Expire{Term: r.term, Leases: due}
			decided := r.now
			r.proposeInternal(c, func(applied bool) { r.expired(due, decided, applied) })
		}
	}
	if !r.silence.busy {
		if silent := r.lessor.Silent(r.cfg.MaxExpire); len(silent) > 0 {
			r.silence.busy = true
			c := &fsm.Checkpoint{Term: r.term, Leases: silent}
			r.proposeInternal(c, func(applied bool) { r.checkpointed(silent, applied) })
		}
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
	r.expiry.busy = false
	for i := range due {
		if applied {
			r.out.Late = append(r.out.Late, due[i].Late+lease.TTL(r.now-decided))
		}
	}
	if !applied && r.primary {
		r.lessor.Reinstate(ids(due, func(d lease.Due) lease.ID { return d.ID }))
	}
	r.unpark()
}

func (r *Replica) checkpointed(silent []lease.Checkpoint, applied bool) {
	r.silence.busy = false
	if !applied && r.primary {
		r.lessor.Reinstate(ids(silent, func(c lease.Checkpoint) lease.ID { return c.ID }))
	}
}

func ids[T any](in []T, id func(T) lease.ID) []lease.ID {
	out := make([]lease.ID, len(in))
	for i := range in {
		out[i] = id(in[i])
	}
	return out
}
