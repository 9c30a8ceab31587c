package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// Output is the result of a step. The order in which its parts are carried out matters: answers may
// be sent only after the new state is readable, because a client may read as soon as it is
// answered.
type Output struct {
	// Append holds messages to save, in order. Persisted must be called for each message once it is
	// saved. A message without Responses need not be durable.
	Append []*raftpb.Message
	// Send holds messages for other members. For a snapshot message (raftpb.MsgSnap), the shell
	// streams the current state and calls SnapshotSent when the stream ends. The state on disk may
	// be too old: it can precede the membership change that added the receiver.
	Send []*Message
	// Ask lists members that have not been heard from for a while. The shell probes each member's
	// process, not its core, and calls Answered if an answer arrives.
	Ask []uint64
	// Silent lists members that have just become unresponsive.
	Silent []silence.State
	// Restored is true if a snapshot has replaced the state. If so, earlier results of Machine are
	// obsolete, and Changes contains only changes after the snapshot.
	Restored bool
	// Removed is true if this member is no longer in the cluster and must stop.
	Removed bool
	// Failed is not nil if a committed entry cannot be applied. Possible reasons are an
	// [ErrImpossible], an entry written by a newer release (encoding.ErrNewer), and a cluster
	// version that this release does not support (encoding.ErrNewer or encoding.ErrOlder). Neither
	// the entry nor anything after it is applied, and the member must stop.
	Failed error
	// Hash, if not nil, is a state to be hashed. The shell must compute the hash outside its loop
	// and pass it to ReportHash.
	Hash *fsm.Image
	// Changes lists the changes to the store, for watchers.
	Changes []fsm.Change
	// Applied is true if the state has changed, so a new view must be published.
	Applied bool

	Proposals []*Proposal
	Reads     []*Read
	Renewals  []Renewal
	Together  []*Renewals
	Groups    []*Renewals // batches with answered GroupRenewals
	// Opened holds the answers to OpenCache.
	Opened []OpenCache
	// Invalidations are for caches that are open on this member. An invalidation for a cache that
	// is no longer open here has no effect. It is sent again through the member where the cache is
	// open now.
	Invalidations []Invalidation
	CacheWaits
	// SlowNews is true, on any member, if the slow caches may have changed: see
	// [Replica.SlowCaches].
	SlowNews bool
	// Late holds, for each expired lease, how long after its expiry the entry was applied.
	Late []lease.TTL
}

// CacheWaits describes, on the leader, how commands waited for caches.
type CacheWaits struct {
	// Waits holds the waiting times. WereSlow holds the caches that were slow but no longer are:
	// writes had to wait unusually long for them.
	Waits    []lease.TTL
	WereSlow []SlowCache
	// Forwarded holds the applied commands that have a trace and were forwarded by other members.
	Forwarded []*Proposal
}

// Take does all the work that the inputs since the last call require, and returns the results. The
// slices, and the events in Changes, belong to the caller until it calls Take again.
func (r *Replica) Take() Output {
	r.machine.ReuseChanges()
	r.applyCommitted()
	r.drain()
	if r.lead != nil {
		r.lead.expire()
	}
	r.detectUnresponsive()
	r.campaign()
	for {
		if l := r.lead; l != nil {
			l.openGates()
			r.flush(l)
			r.flushChange(l)
		}
		r.dispatch()
		r.confirm()
		r.drain()
		if r.lead != nil {
			r.lead.release()
		}
		r.relay.asks.release()
		if !r.hasNewWork() {
			break
		}
	}
	if r.lead != nil {
		r.lead.sendInvalidations()
		r.lead.sendReplies()
	}
	r.out.SlowNews, r.slow.news = r.slow.news, false
	r.out.Changes = r.machine.TakeChanges()
	r.raft.backlog.rest()
	return r.out.take()
}

// hasNewWork reports whether the answers have led to new work that can be done immediately, such as
// retrying a renewal.
func (r *Replica) hasNewWork() bool {
	l := r.lead
	return l != nil && (r.primary && l.rounds.hasNext() || l.gate.hasReady() ||
		r.raft.appending == 0 && !r.raft.transferring() && l.queue.due(0, r.now))
}

// drain processes everything that Raft has ready.
func (r *Replica) drain() {
	for r.raft.node.HasReady() {
		now, entries, done := r.raft.ready(r.role, &r.out)
		was := r.role
		if now != was {
			r.follow(now)
		}
		r.failover.follow(was, r.role, r.now)
		r.inflight.assign(entries, r.term)
		for i := range done {
			if r.lead != nil {
				r.lead.rounds.confirmed(binary.BigEndian.Uint64(done[i].RequestCtx), done[i].Index)
			}
		}
		r.applyCommitted()
	}
}

// follow handles changes in term and leadership. Leadership ends when its term ends.
func (r *Replica) follow(now role) {
	r.role = now
	if r.lead != nil {
		r.resign()
	}
	if r.leading {
		r.lead = newLeadership(r.local, &r.inflight, &r.slow, r.lastRound, r.lastGroup)
	}
	if len(r.slow.list) > 0 {
		r.slow.set(nil, r.ticks)
	}
}

// resign ends the leadership. Requests from this member's clients that can still be served are
// passed to the next leader.
func (r *Replica) resign() {
	r.lastRound, r.lastGroup = r.lead.rounds.last, r.lead.keepers.last
	r.relay.give(r.lead.close())
	r.lead = nil
}

// dispatch sends waiting requests to the leader, if one is known.
func (r *Replica) dispatch() {
	if r.lead != nil {
		r.lead.takeOver(r.relay.take())
	} else {
		r.relay.send()
	}
}

// confirm begins a confirm round if requests are waiting for one and none is in progress.
func (r *Replica) confirm() {
	if !r.primary {
		return
	}
	if id, ok := r.lead.rounds.begin(); ok {
		r.raft.confirm(id)
	}
}

// flush proposes the leader's queue as one entry, or as several entries of MaxBatch bytes.
func (r *Replica) flush(l *leadership) {
	if r.cfg.CommitDelay && r.raft.appending == 0 { // the log is free
		l.queue.delay.free(len(l.queue.waiting))
	}
	if !l.queue.due(r.raft.appending, r.now) {
		return
	}
	l.queue.delay.proposed(len(l.queue.waiting))
	for len(l.queue.waiting) > 0 && !l.queue.versioning {
		data, group := l.queue.entry(r.inflight.time())
		if len(group.proposals) == 0 {
			p := l.queue.waiting[0]
			l.queue.remove(1)
			l.refuse(p, ErrTooLarge)
			continue
		}
		if err := r.raft.propose(data); err != nil {
			l.queue.versioning = false
			if r.raft.transferring() {
				return // these will be retried once the leader is known
			}
			l.queue.remove(len(group.proposals))
			for _, p := range group.proposals {
				if p.internal != nil {
					l.expiry.pause(r.now)
				}
				l.refuse(p, err)
			}
			continue
		}
		l.queue.remove(len(group.proposals))
		// Nothing else has been proposed since the last Ready, so the next Ready contains this
		// entry with its index.
		group.term = r.term
		r.inflight = append(r.inflight, group)
		r.drain()
	}
}
