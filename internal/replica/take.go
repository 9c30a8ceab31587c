package replica

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// Output is what a step brought about. The order in which its parts are
// carried out matters: answers may be given only after the new state can be
// read, since a client that is answered may read at once.
type Output struct {
	// Append is to be saved, in order; Persisted is called for each message
	// once it is. A message without Responses need not be durable.
	Append []*raftpb.Message
	// Send is for other members. For a snapshot's message (raftpb.MsgSnap) the shell
	// streams the present state (the one on disk may be older than the membership that
	// the receiver is part of), and tells SnapshotSent how that ended.
	Send []*Message
	// Ask are members that have not been heard for a while: the shell asks each of their
	// processes, not their cores, for an answer, and calls Answered if one comes.
	Ask []uint64
	// Silent are members that are taken for hung or cut off from now on.
	Silent []silence.State
	// Restored says that a snapshot has taken the place of the state: what Machine
	// returned before is of no use any more. Changes are those after it.
	Restored bool
	// Removed says that this member is no longer in the cluster, and is to stop.
	Removed bool
	// Failed says that a committed entry cannot be applied, because of an [ErrImpossible], or
	// because a newer release has written it (encoding.ErrNewer); or that with it the cluster has a
	// version that this release does not speak (or encoding.ErrOlder). Nothing of what cannot be
	// applied is, nothing after it is, and the member is to stop.
	Failed error
	// Hash, if not nil, is a state of which the shell computes the hash beside its loop, and then
	// calls TellHash.
	Hash *fsm.Image
	// Changes are the changes of the store, for watchers.
	Changes []fsm.Change
	// Applied says that the state moved on, so that a new view is to be published.
	Applied bool

	Proposals []*Proposal
	Reads     []*Read
	Renewals  []Renewal
	Together  []*Renewals
	Groups    []*Renewals // whose GroupRenewals are answered
	// Opened are the answers to OpenCache.
	Opened []OpenCache
	// Invalidations are for caches that are open at this member. Those for others, that
	// are not any more, mean nothing; they are told again where the caches are.
	Invalidations []Invalidation
	CacheWaits
	// SlowNews says, at any member, that other caches are slow now: see
	// [Replica.SlowCaches]. It may be that none of what is told has changed.
	SlowNews bool
	// Late says, for each lease that ended by expiry, how long after its expiry
	// that was applied.
	Late []lease.TTL
}

// CacheWaits tell, at the leader, how commands had to wait for caches.
type CacheWaits struct {
	// Waits says for how long, and WereSlow tells of caches that were waited for unusually long, and
	// are not any more.
	Waits    []lease.TTL
	WereSlow []SlowCache
	// Forwarded are commands with a trace that other members forwarded and that are applied now.
	Forwarded []*Proposal
}

// Take does all work that the inputs since the last call gave, and returns
// what came of it. The slices are the caller's until its next call of Take, and so are the
// events of Changes.
func (r *Replica) Take() Output {
	r.machine.ReuseChanges()
	r.applyCommitted()
	r.drain()
	if r.lead != nil {
		r.lead.expire()
	}
	r.lookForSilent()
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
		if !r.restless() {
			break
		}
	}
	if r.lead != nil {
		r.lead.tellCaches()
		r.lead.remotes.send()
	}
	r.out.SlowNews, r.slow.news = r.slow.news, false
	r.out.Changes = r.machine.TakeChanges()
	r.raft.backlog.rest()
	return r.out.take()
}

// restless reports whether answering has brought up new work that could go on
// at once, a renewal that is tried again, say.
func (r *Replica) restless() bool {
	l := r.lead
	return l != nil && (r.primary && l.rounds.HasNext() || l.gate.hasReady() ||
		r.raft.appending == 0 && !r.raft.transferring() && l.queue.due(0))
}

// drain works through what Raft has ready.
func (r *Replica) drain() {
	for r.raft.node.HasReady() {
		now, entries, done := r.raft.ready()
		was := r.role
		if now != was {
			r.follow(now)
		}
		r.failover.follow(was)
		r.inflight.assign(entries, r.term)
		for i := range done {
			if r.lead != nil {
				r.lead.rounds.Confirmed(binary.BigEndian.Uint64(done[i].RequestCtx), done[i].Index)
			}
		}
		r.applyCommitted()
	}
}

// follow follows the changes of term and leadership. What this member has only while it leads ends
// with the term, and begins with it.
func (r *Replica) follow(now role) {
	r.role = now
	if r.lead != nil {
		r.resign()
	}
	if r.leading {
		r.lead = newLeadership(r.local, &r.inflight, &r.slow, r.lastRound)
	}
	if len(r.slow.list) > 0 {
		r.slow.set(nil)
	}
}

// resign ends what this member has only while it leads. What its own clients asked for, and what
// can still be done, goes to the next leader.
func (r *Replica) resign() {
	r.lastRound = r.lead.rounds.Last()
	r.relay.give(r.lead.close())
	r.lead = nil
}

// dispatch brings what waits for a leader to it, if one is known.
func (r *Replica) dispatch() {
	if r.lead != nil {
		r.lead.takeOver(r.relay.take())
	} else {
		r.relay.send()
	}
}

// confirm begins a confirm round, if anything waits for one and none is under way.
func (r *Replica) confirm() {
	if !r.primary {
		return
	}
	if id, ok := r.lead.rounds.Begin(); ok {
		r.raft.confirm(id)
	}
}

// flush proposes what is in the leader's queue as one entry, or as several of MaxBatch bytes.
func (r *Replica) flush(l *leadership) {
	l.queue.look(r.raft.appending)
	if !l.queue.due(r.raft.appending) {
		return
	}
	l.queue.delay.Proposed(len(l.queue.waiting))
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
				return // and try again when it is known who leads
			}
			l.queue.remove(len(group.proposals))
			for _, p := range group.proposals {
				if p.internal != nil {
					l.expiry.pause()
				}
				l.refuse(p, err)
			}
			continue
		}
		l.queue.remove(len(group.proposals))
		// Nothing else was proposed since the last Ready, so the entry
		// that it shows next is this one, and tells its index.
		group.term = r.term
		r.inflight = append(r.inflight, group)
		r.drain()
	}
}
