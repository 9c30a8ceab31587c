package replica

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// checkpointEvery is how long silent leases gather for one entry, in
// milliseconds, unless there are more than one entry holds. Nobody waits for it,
// but a leader that dies meanwhile makes them last that much longer.
const checkpointEvery = 100

// retryEvery is how long an entry that Raft did not take waits before the next try, in
// milliseconds: Raft takes none while too much is uncommitted, as when the disks of all followers
// are frozen, and each try costs a warning.
const retryEvery = 100

// expirer decides, at a primary, which leases expire in the next entry, and the remaining time of
// which is replicated. One entry of each kind is under way at a time, and the next is made when it
// has been applied. So expiry takes its share of the log and no more (T13): however many leases end
// together, foreground commands wait for one entry at most.
type expirer struct {
	m                       *local
	began                   uint64 // tick of the election, then of the promotion
	expiring, checkpointing bool
	silence                 lease.Instant // before which no other checkpoint is proposed
	refused                 refusal
	clearing                int           // entries under way that clear a checkpoint
	oldest                  lease.Instant // expiry of the first lease in the entry that expires
	// afterAll is called when the remaining time of every silent lease is replicated.
	afterAll func()
	// refresh says that the clock is not to be trusted until every lease has got its
	// full TTL again.
	refresh bool
}

// refusal is when Raft last refused an entry: the next try is made at retry, or as soon as more
// than the entries up to index is applied, which makes room.
type refusal struct {
	retry lease.Instant
	index uint64
}

// due returns the leases that the next entry expires: at most MaxExpire, and
// so few that they have at most twice as many keys, unless one alone has more
// (T14). The others stay due.
func (e *expirer) due() []lease.Due {
	if e.waits() {
		return nil
	}
	most := e.m.cfg.MaxExpire
	due := e.m.lessor.Due(most)
	keys := 0
	for i, d := range due {
		keys += e.m.lessor.KeyCount(d.ID)
		if i > 0 && keys > 2*most {
			e.m.lessor.Reinstate(due[i:])
			return due[:i:i]
		}
	}
	return due
}

// expire returns the command that expires leases, and takes it for proposed.
func (e *expirer) expire(due []lease.Due) *fsm.Expire {
	e.expiring = true
	e.oldest = e.m.now - lease.Instant(due[0].Late)
	return &fsm.Expire{Term: e.m.term, Leases: due}
}

// expired learns the outcome of an expiry. A command that Raft did not take
// is certain to have no effect, so its leases are alive again and due again;
// never on a timeout, which would leave the outcome open (T5, T12).
func (e *expirer) expired(due []lease.Due, decided lease.Instant, applied bool) {
	for i := range due {
		if applied {
			late := due[i].Late + lease.TTL(e.m.now-decided)
			e.m.out.Late = append(e.m.out.Late, late)
		}
	}
	if !applied {
		e.m.lessor.Reinstate(due)
	}
}

// pause notes that Raft refused an entry with a command of this part.
func (e *expirer) pause() {
	e.refused = refusal{e.m.now + retryEvery, e.m.machine.Index()}
}

// mayRefresh reports whether all leases are to get their full TTL again, and nothing that was
// decided before is under way.
func (e *expirer) mayRefresh() bool {
	return e.refresh && !e.expiring && !e.checkpointing && e.clearing == 0
}

// fresh reports whether this leader has led for less than an election timeout, so that others
// may not have had the time to answer it.
func (e *expirer) fresh() bool {
	return e.m.ticks < e.began+uint64(e.m.cfg.ElectionTicks)
}

// overdue is for how long the first lease of the entry that expires has been past its expiry.
func (e *expirer) overdue() lease.TTL {
	if !e.expiring {
		return 0
	}
	return lease.TTL(e.m.now - e.oldest)
}

// next returns the instant at which there may be something to propose that no input brings.
func (e *expirer) next() (lease.Instant, bool) {
	at, ok := e.soonest()
	if e.waits() {
		at = max(at, e.refused.retry)
	}
	return at, ok
}

// waits reports whether nothing is proposed now, since Raft would refuse it.
func (e *expirer) waits() bool {
	return e.m.now < e.refused.retry && e.m.machine.Index() == e.refused.index
}

// soonest is next if Raft takes every entry.
func (e *expirer) soonest() (lease.Instant, bool) {
	if !e.m.primary || e.expiring || e.refresh {
		return 0, false
	}
	if e.afterAll != nil && !e.checkpointing {
		return e.m.now, true
	}
	at, ok := e.m.lessor.Next()
	if at > e.m.now || !e.checkpointing && e.m.now >= e.silence {
		return at, ok
	}
	// What is silent now waits: for the outcome of a checkpoint, which is an input, or until
	// others have gathered. What falls due meanwhile does not wait.
	due, ok := e.m.lessor.NextDue()
	if !e.checkpointing && e.silence < due {
		due = e.silence
	}
	return max(due, e.m.now+1), ok
}
