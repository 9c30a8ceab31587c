package replica

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// checkpointEvery is how long silent leases are collected before one entry with all of them is
// proposed, in milliseconds. A full entry is proposed earlier. No client waits for the entry. But
// if the leader fails before the entry is committed, the leases last that much longer.
const checkpointEvery = 100

// retryEvery is the delay before a rejected entry is proposed again, in milliseconds. Raft rejects
// entries while too much is uncommitted, for example when the disks of all followers have stalled.
// It logs a warning each time.
const retryEvery = 100

// expirer runs on a primary. It decides which leases expire in the next entry, and for which leases
// the remaining time is replicated. The log contains at most one unapplied entry of each kind. This
// bounds the share of the log that expiry takes (T13): however many leases end at the same time,
// clients' commands wait for at most one entry.
type expirer struct {
	m                       *local
	began                   uint64 // tick of the election, and later of the promotion
	expiring, checkpointing bool
	silence                 lease.Instant // when the next checkpoint can be proposed
	refused                 refusal
	clearing                int // number of entries in the log that clear a checkpoint
	// expiry of the first lease in the Expire that is in the log
	oldest lease.Instant
	// afterAll is called once the remaining time of every silent lease has been replicated.
	afterAll func()
	// refresh is true while the clock is not trusted. It is reset once every lease has its full TTL
	// again.
	refresh bool
}

// refusal records when Raft last rejected an entry. The next attempt is made at retry, or earlier
// if an entry after index has been applied, because that frees space.
type refusal struct {
	retry lease.Instant
	index uint64
}

// due returns the leases to expire in the next entry. It returns at most MaxExpire leases with at
// most twice as many keys in total, unless the first lease alone has more (T14). The other leases
// stay due.
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

// expire returns a command that expires the leases, and marks it as proposed.
func (e *expirer) expire(due []lease.Due) *fsm.Expire {
	e.expiring = true
	e.oldest = e.m.now - lease.Instant(due[0].Late)
	return &fsm.Expire{Term: e.m.term, Leases: due}
}

// expired handles the outcome of an expiry. If Raft rejected the command, it certainly has no
// effect, so its leases are alive and due again. A timeout never counts as a rejection, because
// after a timeout the outcome is unknown (T5, T12).
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

// pause records that Raft rejected an entry of the expirer.
func (e *expirer) pause() {
	e.refused = refusal{e.m.now + retryEvery, e.m.machine.Index()}
}

// mayRefresh reports whether all leases must get their full TTL again, and none of the expirer's
// earlier entries is still in the log.
func (e *expirer) mayRefresh() bool {
	return e.refresh && !e.expiring && !e.checkpointing && e.clearing == 0
}

// fresh reports whether this leader has led for less than an election timeout. Other members may
// not have had time to answer it yet.
func (e *expirer) fresh() bool {
	return e.m.ticks < e.began+uint64(e.m.cfg.ElectionTicks)
}

// overdue returns the time since the expiry of the first lease in the Expire that is in the log.
func (e *expirer) overdue() lease.TTL {
	if !e.expiring {
		return 0
	}
	return lease.TTL(e.m.now - e.oldest)
}

// next returns when there may be something to propose even if no input arrives.
func (e *expirer) next() (lease.Instant, bool) {
	at, ok := e.soonest()
	if e.waits() {
		at = max(at, e.refused.retry)
	}
	return at, ok
}

// waits reports whether proposals are postponed because Raft would reject them.
func (e *expirer) waits() bool {
	return e.m.now < e.refused.retry && e.m.machine.Index() == e.refused.index
}

// soonest is like next, but assumes that Raft accepts every entry.
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
	// Silent leases wait until more have been collected. While a checkpoint is in flight, they wait
	// for its outcome, which is an input. Leases that become due in the meantime do not wait.
	due, ok := e.m.lessor.NextDue()
	if !e.checkpointing && e.silence < due {
		due = e.silence
	}
	return max(due, e.m.now+1), ok
}
