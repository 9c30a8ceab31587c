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
	machine                 *fsm.Machine
	lessor                  *lease.Lessor // the machine's lessor
	term                    uint64
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

// due returns the leases to expire in the next entry. It returns at most limit leases with at
// most twice as many keys in total, unless the first lease alone has more (T14). The other leases
// stay due.
func (e *expirer) due(now lease.Instant, limit int) []lease.Due {
	if e.waits(now) {
		return nil
	}
	due := e.lessor.Due(limit)
	keys := 0
	for i, d := range due {
		keys += e.lessor.KeyCount(d.ID)
		if i > 0 && keys > 2*limit {
			e.lessor.Reinstate(due[i:])
			return due[:i:i]
		}
	}
	return due
}

// expire returns a command that expires the leases, and marks it as proposed.
func (e *expirer) expire(due []lease.Due, now lease.Instant) *fsm.Expire {
	e.expiring = true
	e.oldest = now - lease.Instant(due[0].Late)
	return &fsm.Expire{Term: e.term, Leases: due}
}

// pause records that Raft rejected an entry of the expirer.
func (e *expirer) pause(now lease.Instant) {
	e.refused = refusal{now + retryEvery, e.machine.Index()}
}

// mayRefresh reports whether all leases must get their full TTL again, and none of the expirer's
// earlier entries is still in the log.
func (e *expirer) mayRefresh() bool {
	return e.refresh && !e.expiring && !e.checkpointing && e.clearing == 0
}

// fresh reports whether this leader has led for less than an election timeout. Other members may
// not have had time to answer it yet.
func (e *expirer) fresh(ticks, timeout uint64) bool {
	return ticks < e.began+timeout
}

// overdue returns the time since the expiry of the first lease in the Expire that is in the log.
func (e *expirer) overdue(now lease.Instant) lease.TTL {
	if !e.expiring {
		return 0
	}
	return lease.TTL(now - e.oldest)
}

// next returns when there may be something to propose even if no input arrives.
func (e *expirer) next(now lease.Instant) (lease.Instant, bool) {
	at, ok := e.soonest(now)
	if e.waits(now) {
		at = max(at, e.refused.retry)
	}
	return at, ok
}

// waits reports whether proposals are postponed because Raft would reject them.
func (e *expirer) waits(now lease.Instant) bool {
	return now < e.refused.retry && e.machine.Index() == e.refused.index
}

// soonest is like next, but assumes that Raft accepts every entry.
func (e *expirer) soonest(now lease.Instant) (lease.Instant, bool) {
	if e.expiring || e.refresh {
		return 0, false
	}
	if e.afterAll != nil && !e.checkpointing {
		return now, true
	}
	at, ok := e.lessor.Next()
	if at > now || !e.checkpointing && now >= e.silence {
		return at, ok
	}
	// Silent leases wait until more have been collected. While a checkpoint is in flight, they wait
	// for its outcome, which is an input. Leases that become due in the meantime do not wait.
	due, ok := e.lessor.NextDue()
	if !e.checkpointing && e.silence < due {
		due = e.silence
	}
	return max(due, now+1), ok
}
