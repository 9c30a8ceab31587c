package replica

import (
	"errors"
	"slices"

	"go.etcd.io/raft/v3"

	"leasehold.dev/internal/directory"
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
	// origin is the member that forwarded the command, and its number there.
	origin fsm.Origin
	born   uint64 // the tick at which it came
	// write is what the gate knows of it, while that has to.
	write *directory.Write
	apart *apart // if it ends a lease by itself
}

// Propose takes a command from a client of this member. It is answered when
// its entry is applied here, so that who is answered reads his own write, and
// whoever leads: a command that is certain to have been lost with its leader is
// proposed again. Internal commands are refused whoever sent them (T1).
func (r *Replica) Propose(p *Proposal) {
	p.born = r.ticks
	switch {
	case !fsm.Readable(p.Command):
		r.refuse(p, fsm.ErrUnreadable)
	case r.leading:
		r.admit(p)
	case fsm.Internal(p.Command):
		r.refuse(p, ErrInternal)
	case r.forward.full():
		r.refuse(p, ErrOverloaded)
	default:
		r.forward.queue = append(r.forward.queue, p)
	}
}

// admit takes a command into this leader's log, from a client of any member.
func (r *Replica) admit(p *Proposal) {
	if fsm.Internal(p.Command) {
		r.refuse(p, ErrInternal)
		return
	}
	r.enqueue(p)
}

// proposeInternal takes a command of the leader's timers; done learns
// whether it was applied. It never waits behind clients' admission.
func (r *Replica) proposeInternal(c fsm.Command, done func(applied bool)) {
	r.enqueue(&Proposal{Command: c, internal: done})
}

func (r *Replica) enqueue(p *Proposal) {
	if fsm.Membership(p.Command) {
		r.changes.waiting = append(r.changes.waiting, p)
		return
	}
	r.pass(p)
}

// flush proposes what waits as one entry, or as several of MaxBatch bytes.
// While an append is being synced it holds back, so that everything that
// arrives meanwhile shares the next entry and the next sync (group commit).
func (r *Replica) flush() {
	if r.cfg.Gather && r.appending == 0 {
		r.gathering.begin(len(r.waiting))
	}
	if len(r.waiting) == 0 || r.appending > 0 && len(r.waiting) < groupMax || r.Held() ||
		r.deciding {
		return
	}
	r.gathering.proposed(len(r.waiting))
	for len(r.waiting) > 0 && !r.deciding {
		data, n := r.encode()
		if n == 0 {
			r.refuse(r.waiting[0], ErrTooLarge)
			r.waiting = r.waiting[1:]
			continue
		}
		group := r.waiting[:n:n]
		number := r.gate.tick - uint64(len(r.waiting)) + 1
		if err := r.raft.Propose(data); err != nil {
			r.deciding = false
			if r.transferring() {
				return // and try again when it is known who leads
			}
			r.waiting = r.waiting[n:]
			r.refuseAll(group, r.refusal(err))
			continue
		}
		r.waiting = r.waiting[n:]
		// Nothing else was proposed since the last Ready, so the entry
		// that it shows next is this one, and tells its index.
		r.pending = append(r.pending, batch{term: r.term, number: number, proposals: group})
		r.drain()
	}
	if len(r.waiting) == 0 {
		r.waiting, r.scratch.waiting = r.scratch.waiting, nil
	}
}

// encode returns an entry of the first n commands that wait, about groupMax at most; of none, if
// the first is too large. It is good until the next call: Raft makes a copy of what is proposed.
func (r *Replica) encode() (data []byte, n int) {
	data = fsm.AppendEntry(r.scratch.entry[:0], r.machine.Version().Number)
	for ok := true; ok && n < len(r.waiting) && n < groupMax && len(data) < r.cfg.MaxBatch &&
		!r.deciding; {
		from := r.waiting[n].origin
		if from.Member == 0 {
			if data, ok = appendCommand(data, r.waiting[n].Command); ok {
				r.deciding = r.waiting[n].decides()
				n++
			}
			continue
		}
		body, run := r.encodeRun(r.waiting[n:], r.cfg.MaxBatch-len(data))
		if ok = run > 0; ok {
			data = append(fsm.AppendGroup(data, from, run), body...)
			r.deciding = slices.ContainsFunc(r.waiting[n:n+run], (*Proposal).decides)
			n += run
		}
	}
	r.scratch.entry = data
	return data, n
}

// encodeRun encodes commands that another member has numbered one after the other, those that
// list begins with, as many as begin within so many bytes. There are none if the first is too
// large.
func (r *Replica) encodeRun(list []*Proposal, room int) (body []byte, run int) {
	body = r.scratch.body[:0]
	for next := list[0].origin; run < min(len(list), groupMax) && list[run].origin == next &&
		(run == 0 || len(body) < room); next.Seq++ {
		var ok bool
		if body, ok = appendCommand(body, list[run].Command); !ok {
			break
		}
		run++
	}
	r.scratch.body = body
	return body, run
}

// MaxCommand is the largest command, as it stands in the log. An entry has less than
// Config.MaxBatch bytes beside its last command.
const MaxCommand = 48 << 20

// MaxBeside is what may be in a message to another member, at most, beside Config.MaxBatch bytes
// and one command, or one thing that a cache says, of any size: as many asks as may wait,
// maxCacheBytes twice, and what has a bounded length.
const MaxBeside = 15 << 20

// appendCommand appends a command to an entry, or says that it is too large.
func appendCommand(b []byte, c fsm.Command) (_ []byte, ok bool) {
	out := fsm.AppendCommand(b, c)
	if len(out)-len(b) > MaxCommand {
		return b, false
	}
	return out, true
}

// groupMax is how many commands may wait for one sync. Beyond it the next
// entry is proposed at once; the disk is behind and pipelining helps.
const groupMax = 4096

// transferring reports whether this leader is handing over, and so takes
// nothing in.
func (r *Replica) transferring() bool {
	return r.leading && r.raft.BasicStatus().LeadTransferee != raft.None
}

// refusal translates why Raft took no proposal.
func (r *Replica) refusal(err error) error {
	if errors.Is(err, raft.ErrProposalDropped) && r.leading {
		return ErrOverloaded
	}
	return ErrNoLeader
}

func (r *Replica) refuse(p *Proposal, err error) {
	r.outcome(p)
	switch {
	case p.internal != nil:
		p.internal(false)
	case p.origin.Member != 0:
		r.remote(p.origin.Member).refuse(p.origin.Seq, err)
	default:
		p.Err = err
		r.out.Proposals = append(r.out.Proposals, p)
	}
}

func (r *Replica) refuseAll(ps []*Proposal, err error) {
	for _, p := range ps {
		r.refuse(p, err)
	}
}

// again takes proposals that are certain to have been lost with a term. This
// member's own are proposed anew; another member finds that out by itself.
func (r *Replica) again(ps []*Proposal) {
	var own []*Proposal
	for _, p := range ps {
		r.outcome(p)
		switch {
		case p.internal != nil:
			p.internal(false)
		case p.origin.Member == 0:
			own = append(own, p)
		}
	}
	if len(own) > 0 {
		r.forward.queue = slices.Concat(own, r.forward.queue)
	}
}

// answer gives the proposals of an applied entry their results.
func (r *Replica) answer(ps []*Proposal, results []fsm.Result) {
	for i, p := range ps {
		r.outcome(p)
		switch {
		case p.internal != nil:
			p.internal(true)
		case p.origin.Member == 0:
			p.Result = results[i]
			r.gathering.heard(r.now)
			r.out.Proposals = append(r.out.Proposals, p)
		}
	}
}

// takePending returns the proposals of the entry (index, term), if it is
// this member's, because that entry is applied. Batches that the log has passed by,
// and all of earlier terms, wherever they stood, were overwritten by another leader's
// entries and are gone for certain: the terms in a log do not fall.
func (r *Replica) takePending(index, term uint64) (found []*Proposal) {
	var lost []*Proposal
	n := 0
	for ; n < len(r.pending) && found == nil; n++ {
		b := &r.pending[n]
		if b.index == index && b.term == term {
			found = b.proposals
			continue
		}
		if b.term >= term && (b.index == 0 || b.index > index) {
			break
		}
		lost = append(lost, b.proposals...)
	}
	r.pending = cut(r.pending, 0, n)
	r.again(lost)
	return found
}
