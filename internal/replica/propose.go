package replica

import (
	"errors"

	"go.etcd.io/raft/v3"

	"leasehold.dev/internal/fsm"
)

// Proposal is a command on its way through the log, and its outcome. Take
// returns it once, when Result or Err is set.
type Proposal struct {
	Command fsm.Command
	Result  fsm.Result
	// Err says why there is no result.
	Err error
	// Owner is the caller's, to find who waits.
	Owner any
	// internal marks the leader's own commands, which nobody waits for.
	internal func(applied bool)
}

// Propose takes a command from a client. The command is admitted here, at
// the leader: internal ones are refused whoever sent them (T1).
func (r *Replica) Propose(p *Proposal) {
	switch {
	case fsm.Internal(p.Command):
		r.refuse(p, ErrInternal)
	case !r.leading:
		r.refuse(p, ErrNoLeader)
	default:
		r.enqueue(p)
	}
}

// proposeInternal takes a command of the leader's timers; done learns
// whether it was applied. It never waits behind clients' admission.
func (r *Replica) proposeInternal(c fsm.Command, done func(applied bool)) {
	r.enqueue(&Proposal{Command: c, internal: done})
}

func (r *Replica) enqueue(p *Proposal) {
	r.waiting = append(r.waiting, p)
}

// flush proposes what waits as one entry, or as several of MaxBatch bytes.
// While an append is being synced it holds back, so that everything that
// arrives meanwhile shares the next entry and the next sync (group commit).
func (r *Replica) flush() {
	if len(r.waiting) == 0 || r.appending > 0 && len(r.waiting) < groupMax {
		return
	}
	for len(r.waiting) > 0 {
		data := fsm.AppendEntry(make([]byte, 0, 256*min(len(r.waiting), 64)))
		n := 0
		for n < len(r.waiting) && len(data) < r.cfg.MaxBatch {
			data = fsm.AppendCommand(data, r.waiting[n].Command)
			n++
		}
		group := r.waiting[:n:n]
		r.waiting = r.waiting[n:]
		if err := r.raft.Propose(data); err != nil {
			r.refuseAll(group, r.refusal(err))
			continue
		}
		// Nothing else was proposed since the last Ready, so the entry
		// that it shows next is this one, and tells its index.
		r.pending = append(r.pending, batch{term: r.term, proposals: group})
		r.drain()
	}
	r.waiting = nil
}

// groupMax is how many commands may wait for one sync. Beyond it the next
// entry is proposed at once; the disk is behind and pipelining helps.
const groupMax = 4096

// refusal translates why Raft took no proposal.
func (r *Replica) refusal(err error) error {
	if errors.Is(err, raft.ErrProposalDropped) && r.leading {
		return ErrOverloaded
	}
	return ErrNoLeader
}

func (r *Replica) refuse(p *Proposal, err error) {
	if p.internal != nil {
		p.internal(false)
		return
	}
	p.Err = err
	r.out.Proposals = append(r.out.Proposals, p)
}

func (r *Replica) refuseAll(ps []*Proposal, err error) {
	for _, p := range ps {
		r.refuse(p, err)
	}
}

// answer gives the proposals of an applied entry their results.
func (r *Replica) answer(ps []*Proposal, results []fsm.Result) {
	for i, p := range ps {
		if p.internal != nil {
			p.internal(true)
			continue
		}
		p.Result = results[i]
		r.out.Proposals = append(r.out.Proposals, p)
	}
}

// takePending returns the proposals of the entry (index, term), if it is
// this member's. Batches that the log has passed by were overwritten by
// another leader's entries and are gone for certain.
func (r *Replica) takePending(index, term uint64) []*Proposal {
	for len(r.pending) > 0 && r.pending[0].index != 0 && r.pending[0].index <= index {
		b := r.pending[0]
		r.pending = r.pending[1:]
		if b.index == index && b.term == term {
			return b.proposals
		}
		r.refuseAll(b.proposals, ErrLeaderChanged)
	}
	return nil
}
