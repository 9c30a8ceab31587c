package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

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
	// Send is for other members.
	Send []*raftpb.Message
	// Changes are the changes of the store, for watchers.
	Changes []fsm.Change
	// Applied says that the state moved on, so that a new view is to be published.
	Applied bool

	Proposals []*Proposal
	Reads     []*Read
	Renewals  []Renewal
	// Late says, for each lease that ended by expiry, how long after its expiry
	// that was applied.
	Late []lease.TTL
}

// Take does all work that the inputs since the last call gave, and returns
// what came of it. The slices are the caller's until its next call of Take.
func (r *Replica) Take() Output {
	r.drain()
	r.expire()
	for {
		r.flush()
		r.reads.begin(r)
		r.drain()
		r.reads.release(r)
		if !r.restless() {
			break
		}
	}
	r.out.Changes = r.machine.TakeChanges()
	out := r.out
	r.out = Output{}
	return out
}

// restless reports whether answering has brought up new work that could go on
// at once, a renewal that is tried again, say.
func (r *Replica) restless() bool {
	return r.primary && r.reads.current == nil && !r.reads.next.empty() ||
		len(r.waiting) > 0 && r.appending == 0
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
	led, term := r.leading, r.term
	if rd.HardState != nil {
		r.term = rd.HardState.GetTerm()
	}
	if rd.SoftState != nil {
		r.leader = rd.SoftState.Lead
		r.leading = rd.SoftState.RaftState == raft.StateLeader
	}
	if led && (!r.leading || r.term != term) {
		r.demote()
		r.lose()
	}
}

// lose refuses what has not been proposed and can no longer be. What is in
// the log may still be committed; its proposers wait for that.
func (r *Replica) lose() {
	waiting := r.waiting
	r.waiting = nil
	r.refuseAll(waiting, ErrLeaderChanged)
	r.reads.fail(r, ErrLeaderChanged)
}

// route carries one of Raft's messages to where it belongs.
func (r *Replica) route(m *raftpb.Message) {
	switch m.GetTo() {
	case raft.LocalAppendThread:
		r.assign(m.GetEntries())
		r.out.Append = append(r.out.Append, m)
		if len(m.GetEntries()) > 0 {
			r.appending++
		}
	case raft.LocalApplyThread:
		for _, e := range m.GetEntries() {
			r.apply(e)
		}
		for _, resp := range m.GetResponses() {
			r.route(resp)
		}
	case r.cfg.ID:
		if err := r.raft.Step(m); err != nil {
			panic(fmt.Sprintf("replica: raft refused its own %s: %v", m.GetType(), err))
		}
	default:
		r.out.Send = append(r.out.Send, m)
	}
}

// assign learns the index of the batch that was proposed last: entries of
// this term that carry data are this leader's own, in the order of proposal.
func (r *Replica) assign(entries []*raftpb.Entry) {
	if !r.leading {
		return
	}
	for _, e := range entries {
		if len(e.GetData()) == 0 || e.GetType() != raftpb.EntryNormal || e.GetTerm() != r.term {
			continue
		}
		if last := len(r.pending) - 1; last >= 0 && r.pending[last].index == 0 {
			r.pending[last].index = e.GetIndex()
		}
	}
}

// apply applies one committed entry.
func (r *Replica) apply(e *raftpb.Entry) {
	if !r.machine.Begin(e.GetIndex(), e.GetTerm()) {
		return
	}
	r.out.Applied = true
	switch e.GetType() {
	case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
		r.applyConfChange(e)
	default:
		r.applyNormal(e)
	}
	if r.leading && !r.primary && e.GetTerm() == r.term {
		r.promote()
	}
}

func (r *Replica) applyNormal(e *raftpb.Entry) {
	proposals := r.takePending(e.GetIndex(), e.GetTerm())
	if len(e.GetData()) == 0 {
		return
	}
	commands, err := fsm.DecodeEntry(e.GetData())
	if err != nil {
		panic(fmt.Sprintf("replica: entry %d: %v", e.GetIndex(), err))
	}
	results := make([]fsm.Result, len(commands))
	for i, c := range commands {
		results[i] = r.machine.Apply(c)
	}
	r.answer(proposals, results)
}

func (r *Replica) applyConfChange(e *raftpb.Entry) {
	var change raftpb.ConfChangeI
	if e.GetType() == raftpb.EntryConfChange {
		v1 := &raftpb.ConfChange{}
		mustUnmarshal(e, v1)
		change = v1
	} else {
		v2 := &raftpb.ConfChangeV2{}
		mustUnmarshal(e, v2)
		change = v2
	}
	r.conf = r.raft.ApplyConfChange(change)
}

// mustUnmarshal decodes an entry's data. The log's checksums have passed, so
// bytes that do not decode were never what a member proposed.
func mustUnmarshal(e *raftpb.Entry, m proto.Message) {
	if err := proto.Unmarshal(e.GetData(), m); err != nil {
		panic(fmt.Sprintf("replica: entry %d: %v", e.GetIndex(), err))
	}
}

// promote starts this member's tracker: it leads, and has applied an entry
// of its own term, so it knows every lease that any leader granted before.
func (r *Replica) promote() {
	r.primary = true
	r.expiry, r.silence = inflight{}, inflight{}
	r.lessor.Promote(r.now, 0)
	r.unpark()
}

// demote stops the tracker. Decisions on their way lose their meaning with
// the term (the fence of fsm.Expire), so nothing is left to undo.
func (r *Replica) demote() {
	if r.primary {
		r.primary = false
		r.lessor.Demote()
	}
}
