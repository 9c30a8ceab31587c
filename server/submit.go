package server

import (
	"errors"
	"sync"

	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/timing"
	"leasehold.dev/internal/replica"
)

// waiter owns a proposal or a read. When the outcome is known, the core calls answered in its own
// goroutine. If anything is being timed, the argument is the result of Tracer.Now.
type waiter interface{ answered(now int64) }

// answered implements waiter.
func (c *call) answered(now int64) {
	c.stages.Answered(&c.proposal, now)
	c.done <- struct{}{}
}

// submitted is a request that has no waiting goroutine.
type submitted struct {
	proposal replica.Proposal
	read     replica.Read
	// rejection of a command that might have been applied before, which read determines
	refusal error
	to      native.Answered
	stages  timing.Stages
	among   *submission
}

// answered implements waiter.
func (s *submitted) answered(now int64) {
	to, res, err := s.to, s.proposal.Result, s.proposal.Err
	s.among.node.tracer.EndRequest(&s.stages, &s.proposal, s.to, now)
	if s.proposal.Command == nil {
		err = s.read.Err
		if r := s.read.Repeat; r != nil && err == nil {
			res, err = outcomeOf(r, s.refusal)
		}
		s.read, s.refusal = replica.Read{}, nil
	} else {
		s.proposal = replica.Proposal{}
	}
	s.among.node.countRefusal(res.Err)
	if err == nil && errors.Is(res.Err, fsm.ErrNoSpace) {
		s.among.node.runsShort()
	}
	s.to, s.stages = nil, timing.Stages{}
	s.among.release()
	to.Answered(res, err)
}

// submission contains requests that were submitted together. It needs no lock, because only the
// core answers them. It is reused once all of them have been answered.
type submission struct {
	node *node
	all  []submitted // never reallocated while in use
	left int         // number of unanswered requests

	requested int64 // result of Tracer.Now
}

var submissions = sync.Pool{New: func() any { return new(submission) }}

// maxPooled is the maximum size of a submission whose memory is kept for reuse.
const maxPooled = 1024

// newSubmission returns an empty submission with memory for this many requests.
func (n *node) newSubmission(count int) *submission {
	b := submissions.Get().(*submission)
	b.node = n
	if cap(b.all) < count {
		b.all = make([]submitted, 0, max(count, 2*cap(b.all)))
	}
	return b
}

// add adds a request. If refusal is not nil, it is the rejection of a command that might have been
// applied before.
func (b *submission) add(s native.Submission, refusal error) {
	b.all = b.all[:len(b.all)+1]
	w := &b.all[len(b.all)-1]
	w.to, w.among = s.To, b
	w.stages = timing.Requested(s.Trace, b.requested)
	if refusal != nil {
		w.refusal, w.read.Owner = refusal, w
		w.read.Repeat = &replica.Repeat{Command: s.Command}
		return
	}
	if s.Command != nil {
		w.proposal.Command, w.proposal.Owner, w.proposal.Trace = s.Command, w, w.stages.Trace()
		return
	}
	w.read.Fill, w.read.Owner = s.Fill, w
}

// release records that another request has been answered.
func (b *submission) release() {
	if b.left--; b.left > 0 || cap(b.all) > maxPooled {
		return
	}
	b.all, b.node = b.all[:0], nil
	submissions.Put(b)
}

// Submit implements native.Node. It wakes up the core once for all requests.
func (n *node) Submit(list []native.Submission) {
	if len(list) == 0 {
		return
	}
	b := n.newSubmission(len(list))
	b.requested = n.tracer.Now()
	for _, s := range list {
		if s.Command == nil {
			b.add(s, nil)
			continue
		}
		err := n.admit(s.Command)
		if err == nil || fsm.MayBeRepeated(s.Command) {
			b.add(s, err)
		} else {
			s.To.Answered(fsm.Result{}, err)
		}
	}
	if len(b.all) == 0 {
		submissions.Put(b)
		return
	}
	if err := n.inbox.submit(b); err != nil {
		for i := range b.all {
			b.all[i].to.Answered(fsm.Result{}, err)
		}
	}
}

// submit either puts a whole submission into the inbox or rejects it.
func (b *inbox) submit(s *submission) error {
	return b.ask(
		func(m *mail) int { return max(len(m.Proposals), len(m.Reads)) + len(s.all) },
		func(m *mail) {
			s.left = len(s.all)
			for i := range s.all {
				if w := &s.all[i]; w.proposal.Command != nil {
					m.Proposals = append(m.Proposals, &w.proposal)
				} else {
					m.Reads = append(m.Reads, &w.read)
				}
			}
		})
}

// runsShort requests that the NOSPACE alarm be raised. It does not block.
func (n *node) runsShort() {
	select {
	case n.short <- struct{}{}:
	default:
	}
}
