package replica

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
)

// applyCommitted applies as many committed entries as this step has time for.
func (r *Replica) applyCommitted() {
	for e := r.raft.next(&r.out); e != nil; e = r.raft.next(&r.out) {
		if !r.apply(e) {
			r.raft.backlog.again()
		}
	}
}

// apply applies one committed entry. If that would take too long for one step, it does part of the
// expensive work and returns false. The next step continues with the same entry.
func (r *Replica) apply(e *raftpb.Entry) (done bool) {
	if r.out.Failed != nil || e.GetIndex() <= r.machine.Index() {
		return true
	}
	defer r.scratch.release()
	groups, change, err := r.read(e)
	if err != nil {
		r.unreadable(e, err)
		return true
	}
	if r.ahead(groups) {
		return false
	}
	r.machine.Begin(e.GetIndex(), e.GetTerm())
	r.out.Applied = true
	r.relay.commands.requeue(e.GetTerm())
	last := r.applyCommands(e, groups)
	if change != nil {
		r.applyChange(e, change, last)
	}
	if r.machine.HashedAt() == e.GetIndex() {
		r.out.Hash = r.machine.Image()
	}
	r.stopIfDamaged()
	changed := r.machine.TakeHolds()
	if r.lead != nil {
		r.lead.keepers.follow(r.machine.Access())
		r.lead.followHolds(changed)
		if !r.primary && e.GetTerm() == r.term {
			r.lead.promote()
		}
	}
	return true
}

// ahead does some of the expensive work that must be done before an entry is applied, and reports
// whether more remains.
func (r *Replica) ahead(groups []fsm.Group) (more bool) {
	for _, g := range groups {
		for _, c := range g.Commands {
			if r.machine.Prepare(c) {
				return true
			}
		}
	}
	return len(groups) == 1 && len(groups[0].Commands) == 1 &&
		r.machine.Ahead(groups[0].Commands[0])
}

// read decodes an entry into its commands or its change of Raft's configuration. The commands are
// valid until scratch is released.
func (r *Replica) read(e *raftpb.Entry) (_ []fsm.Group, change *raftpb.ConfChangeV2, err error) {
	data := e.GetData()
	if e.GetType() != raftpb.EntryNormal {
		if change, err = readChange(e); err != nil {
			return nil, nil, err
		}
		data = change.GetContext()
	}
	if len(data) == 0 {
		return nil, change, nil
	}
	groups, err := r.scratch.reader.Decode(data)
	if err == nil {
		err = r.vetEntry()
	}
	return groups, change, err
}

// applyCommands applies the commands of an entry. If this member or one of its clients proposed a
// command, it handles the result. It returns the result of the last command.
func (r *Replica) applyCommands(e *raftpb.Entry, groups []fsm.Group) (last fsm.Result) {
	own := r.takeInflight(e.GetIndex(), e.GetTerm())
	proposals := own
	for _, g := range groups {
		results := r.scratch.results[:0]
		for _, c := range g.Commands {
			r.raft.backlog.spend(r.machine.Time(c, 0))
			last = r.machine.Apply(c)
			results = append(results, last)
		}
		switch {
		case proposals != nil:
			r.answer(e.GetTerm(), proposals[:len(results)], results)
			proposals = proposals[len(results):]
		case g.Origin.Member == r.cfg.ID:
			r.relay.commands.applied(e.GetTerm(), g, results)
		}
		r.scratch.results = results
		clear(results)
	}
	if r.lead != nil && len(groups) > 0 {
		r.lead.queue.spare.release(own)
	}
	if err := r.machine.CheckVersion(); err != nil {
		r.unreadable(e, err)
	}
	return last
}

// vetEntry returns an error if the commands of an entry cannot be applied even though they were
// decoded.
func (r *Replica) vetEntry() error {
	if v := r.machine.Version().Number; r.scratch.reader.Version() > v {
		return fmt.Errorf("%w: its version is %d, but the cluster version is %d", fsm.ErrCorrupt,
			r.scratch.reader.Version(), v)
	}
	return nil
}

// answer passes the results of an applied entry to its proposals. A leader ignores the results of
// internal commands that were proposed in another term.
func (r *Replica) answer(term uint64, ps []*Proposal, results []fsm.Result) {
	for i, p := range ps {
		if r.lead != nil {
			r.lead.ended(p)
		}
		switch {
		case p.internal != nil:
			if r.lead != nil && r.lead.term == term {
				r.lead.outcome(p, true)
			}
		case p.origin.Member == 0:
			p.Result, p.Index = results[i], r.machine.Index()
			if r.lead != nil {
				r.lead.queue.delay.answered(r.now)
			}
			r.out.Proposals = append(r.out.Proposals, p)
		case p.Trace != nil:
			p.Index = r.machine.Index()
			r.out.Forwarded = append(r.out.Forwarded, p)
		}
	}
}

// takeInflight returns the proposals of the applied entry (index, term), if this member proposed
// it. It proposes again any commands from this member's clients that are certain to be lost. Other
// members detect the loss of their own clients' commands.
func (r *Replica) takeInflight(index, term uint64) (found []*Proposal) {
	found, lost := r.inflight.take(index, term)
	r.relay.commands.again(own(lost))
	return found
}

// scratch is memory that is reused for each entry.
type scratch struct {
	reader  fsm.Reader
	results []fsm.Result
	members []uint64
}

// release frees the memory used for an entry.
func (s *scratch) release() {
	s.reader.Release()
	if cap(s.results) > keptMost {
		s.results = nil
	}
}
