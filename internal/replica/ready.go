package replica

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// Output is what a step brought about. The order in which its parts are
// carried out matters: answers may be given only after the new state can be
// read, since whoever is answered may read at once.
type Output struct {
	// Append is to be saved, in order; Persisted is called for each message
	// once it is. A message without Responses need not be durable.
	Append []*raftpb.Message
	// Send is for other members. For a snapshot's message (raftpb.MsgSnap) the shell
	// streams the present state (the one on disk may be older than the membership that
	// the receiver is part of), and tells SnapshotSent how that ended.
	Send []*Message
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
	// Changes are the changes of the store, for watchers.
	Changes []fsm.Change
	// Applied says that the state moved on, so that a new view is to be published.
	Applied bool

	Proposals []*Proposal
	Reads     []*Read
	Renewals  []Renewal
	Together  []*Renewals
	// Opened are the answers to OpenCache.
	Opened []OpenCache
	// Invalidations are for caches that are open at this member. Those for others, that
	// are not any more, mean nothing; they are told again where the caches are.
	Invalidations []Invalidation
	// Waits says of commands for how long they had to wait for caches, and WereSlow tells
	// of caches that were waited for unusually long, and are not any more: the leader does.
	Waits    []lease.TTL
	WereSlow []SlowCache
	// SlowNews says, at any member, that other caches are slow now: see
	// [Replica.SlowCaches]. It may be that none of what is told has changed.
	SlowNews bool
	// Late says, for each lease that ended by expiry, how long after its expiry
	// that was applied.
	Late []lease.TTL
}

// Take does all work that the inputs since the last call gave, and returns
// what came of it. The slices are the caller's until its next call of Take, and so are the
// events of Changes.
func (r *Replica) Take() Output {
	r.machine.ReuseChanges()
	r.applyNext()
	r.drain()
	r.expire()
	r.campaign()
	for {
		r.openGates()
		r.flush()
		r.flushChange()
		r.dispatch()
		r.reads.begin(r)
		r.drain()
		r.reads.release(r)
		r.asks.release(r)
		if !r.restless() {
			break
		}
	}
	r.tellCaches()
	r.reply()
	r.out.SlowNews, r.slow.news = r.slow.news, false
	r.out.Changes = r.machine.TakeChanges()
	out := r.out.Output
	r.out = output{Output: r.out.given.emptied(), given: out}
	r.backlog.spent = 0
	return out
}

// output is what gathers for the next Take, and what the last one returned.
type output struct {
	Output
	given Output
}

// emptied returns an empty Output with memory of one that its caller is through with.
func (o *Output) emptied() Output {
	clear(o.Append)
	clear(o.Proposals)
	clear(o.Reads)
	clear(o.Renewals)
	clear(o.Together)
	return Output{
		Append: o.Append[:0], Proposals: o.Proposals[:0], Reads: o.Reads[:0],
		Renewals: o.Renewals[:0], Together: o.Together[:0],
	}
}

func (r *Replica) send(m *Message) {
	m.From, m.Version = r.cfg.ID, r.versionOf(m)
	r.out.Send = append(r.out.Send, m)
}

// restless reports whether answering has brought up new work that could go on
// at once, a renewal that is tried again, say.
func (r *Replica) restless() bool {
	return r.primary && r.reads.current == nil && !r.reads.next.empty() ||
		len(r.waiting) > 0 && r.appending == 0 && !r.transferring() && !r.Held() && !r.deciding ||
		r.gate.caches != nil && r.gate.caches.HasReady()
}

// drain works through what Raft has ready.
func (r *Replica) drain() {
	for r.raft.HasReady() {
		rd := r.raft.Ready()
		if rd.SoftState != nil || rd.HardState != nil {
			r.observe(rd)
		}
		for _, m := range rd.Messages {
			r.route(m)
		}
		for _, s := range rd.ReadStates {
			r.reads.confirmed(s)
		}
	}
}

// observe follows the changes of term and leadership.
func (r *Replica) observe(rd raft.Ready) {
	was := r.role
	if rd.HardState != nil {
		r.term, r.committed = rd.HardState.GetTerm(), rd.HardState.GetCommit()
	}
	if rd.SoftState != nil {
		r.leader = rd.SoftState.Lead
		r.leading = rd.SoftState.RaftState == raft.StateLeader
	}
	if was.leading && (!r.leading || r.term != was.term) {
		r.demote()
		r.lose()
	}
	if len(r.slow.list) > 0 && (r.term != was.term || r.leader != was.leader) {
		r.slow.set(r, nil)
	}
	r.failover.observe(r, was)
}

// lose takes back what has not been proposed and can no longer be: what this
// member's own clients asked goes to the next leader. What is in the log
// may still be committed; its proposers wait for that. Only the timers' own
// commands are of no interest any more, and a renewal that waits for one of them
// asks the next leader rather than to wait for this one's log.
func (r *Replica) lose() {
	for _, b := range r.pending {
		for _, p := range b.proposals {
			if done := p.internal; done != nil {
				p.internal = func(bool) {}
				done(false)
			}
		}
	}
	gated, parked := r.closeGate()
	waiting := slices.Concat(r.waiting, gated, r.changes.waiting)
	r.waiting, r.changes, r.deciding, r.ceiling = nil, memberQueue{}, false, 0
	r.again(waiting)
	r.reads.hand(r)
	r.handRenewals(parked)
}

// route carries one of Raft's messages to where it belongs.
func (r *Replica) route(m *raftpb.Message) {
	switch m.GetTo() {
	case raft.LocalAppendThread:
		r.assign(m.GetEntries())
		r.follow(m)
		r.out.Append = append(r.out.Append, m)
		if len(m.GetEntries()) > 0 {
			r.appending++
		}
		r.incomingTaken(m)
	case raft.LocalApplyThread:
		r.backlog.committed = append(r.backlog.committed, m)
		r.applyNext()
	case r.cfg.ID:
		if err := r.raft.Step(m); err != nil {
			panic(fmt.Sprintf("replica: raft refused its own %s: %v", m.GetType(), err))
		}
	default:
		r.send(&Message{To: m.GetTo(), Raft: m})
	}
}

// follow learns where the log ends.
func (r *Replica) follow(m *raftpb.Message) {
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
		r.last = s.GetMetadata().GetIndex()
	}
	if n := len(m.GetEntries()); n > 0 {
		r.last = m.GetEntries()[n-1].GetIndex()
	}
}

// assign learns the index of the batch that was proposed last: entries of
// this term that carry data are this leader's own, in the order of proposal.
func (r *Replica) assign(entries []*raftpb.Entry) {
	if !r.leading {
		return
	}
	for _, e := range entries {
		if len(e.GetData()) == 0 || e.GetTerm() != r.term {
			continue
		}
		if last := len(r.pending) - 1; last >= 0 && r.pending[last].index == 0 {
			r.pending[last].index = e.GetIndex()
		}
	}
}

// apply applies one committed entry.
func (r *Replica) apply(e *raftpb.Entry) {
	if r.out.Failed != nil || !r.machine.Begin(e.GetIndex(), e.GetTerm()) {
		return
	}
	r.out.Applied = true
	r.forward.bury(e.GetTerm())
	switch e.GetType() {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		r.applyChange(e)
	default:
		r.applyCommands(e, e.GetData())
	}
	r.followHolds()
	if r.leading && !r.primary && e.GetTerm() == r.term {
		r.promote()
	}
}

// unreadable notes that an entry cannot be applied. The checksums of the log and of the
// messages have passed, so it is what a newer release has written, or else what some member, or
// a stranger in its place, has sent. Nothing of the entry is applied, and nothing after it.
func (r *Replica) unreadable(e *raftpb.Entry, err error) {
	if errors.Is(err, encoding.ErrNewer) || errors.Is(err, encoding.ErrOlder) {
		r.out.Failed = fmt.Errorf("replica: entry %d of term %d is committed, and this release "+
			"cannot go on with it: %w", e.GetIndex(), e.GetTerm(), err)
		return
	}
	r.out.Failed = fmt.Errorf("%w: entry %d of term %d is committed and cannot be applied: %w",
		ErrImpossible, e.GetIndex(), e.GetTerm(), err)
}

// applyCommands applies the commands of an entry, and answers those that came
// through this member. It returns the last one's result.
func (r *Replica) applyCommands(e *raftpb.Entry, data []byte) (last fsm.Result) {
	own := r.takePending(e.GetIndex(), e.GetTerm())
	if len(data) == 0 {
		return fsm.Result{}
	}
	groups, err := r.scratch.reader.Decode(data)
	if err == nil {
		err = r.vetEntry()
	}
	if err != nil {
		r.unreadable(e, err)
		return fsm.Result{Err: r.out.Failed}
	}
	proposals := own
	for _, g := range groups {
		results := r.scratch.results[:0]
		for _, c := range g.Commands {
			r.backlog.spent += weight(c)
			last = r.machine.Apply(c)
			results = append(results, last)
		}
		switch {
		case proposals != nil:
			n := min(len(results), len(proposals))
			r.answer(proposals[:n], results)
			proposals = proposals[n:]
		case g.Origin.Member == r.cfg.ID:
			r.forward.applied(r, e.GetTerm(), g, results)
		}
		r.scratch.results = results
		clear(results)
	}
	r.scratch.release(own)
	if err := r.machine.Foreign(); err != nil {
		r.unreadable(e, err)
	}
	return last
}

// scratch is memory for what is over with an entry.
type scratch struct {
	reader  fsm.Reader
	results []fsm.Result
	entry   []byte      // while one is proposed
	body    []byte      // while a part of it is encoded
	waiting []*Proposal // for those that come next, empty
}

// keptMost and keptBytes are how much of it is kept for the next entry.
const (
	keptMost  = 1024
	keptBytes = 256 << 10
)

// release lets go of an entry, and of the proposals of which it was.
func (s *scratch) release(ps []*Proposal) {
	s.reader.Release()
	if cap(s.results) > keptMost {
		s.results = nil
	}
	if cap(ps) <= keptMost {
		clear(ps)
		s.waiting = ps[:0]
	}
	if cap(s.entry) > keptBytes {
		s.entry = nil
	}
	if cap(s.body) > keptBytes {
		s.body = nil
	}
}

// promote starts this member's tracker: it leads, and has applied an entry
// of its own term, so it knows every lease that any leader granted before.
func (r *Replica) promote() {
	r.primary = true
	r.timers = timers{began: r.ticks}
	r.lessor.Promote(r.now, 0)
	r.openGate()
	r.unparkAll()
}

// demote stops the tracker. Decisions on their way lose their meaning with
// the term (the fence of fsm.Expire), so nothing is left to undo.
func (r *Replica) demote() {
	if r.primary {
		r.primary = false
		r.lessor.Demote()
		r.checkpointedAll()
	}
}
