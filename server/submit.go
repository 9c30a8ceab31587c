package server

import (
	"context"

	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
)

// waiter is who owns a proposal or a read. The core calls answered, on its own goroutine,
// when the outcome is there.
type waiter interface{ answered() }

// answered implements waiter.
func (c *call) answered() { c.done <- struct{}{} }

// submitted is a request that nobody's goroutine waits for.
type submitted struct {
	proposal replica.Proposal
	read     replica.Read
	to       native.Answered
}

// answered implements waiter.
func (s *submitted) answered() {
	if s.proposal.Command == nil {
		s.to.Answered(fsm.Result{}, s.read.Err)
		return
	}
	s.to.Answered(s.proposal.Result, s.proposal.Err)
}

// Submit implements native.Submitter: one pass to the core for all of them.
func (n *node) Submit(list []native.Submission) {
	if len(list) == 0 {
		return
	}
	all := make([]submitted, 0, len(list))
	for _, s := range list {
		if n.refuses(s) {
			continue
		}
		all = append(all, submitted{to: s.To, proposal: replica.Proposal{Command: s.Command}})
		w := &all[len(all)-1]
		w.proposal.Owner, w.read.Owner = w, w
		w.read.Fill = s.Fill
	}
	err := n.inbox.ask(
		func(m *mail) int { return max(len(m.proposals), len(m.reads)) + len(all) },
		func(m *mail) {
			for i := range all {
				if w := &all[i]; w.proposal.Command != nil {
					m.proposals = append(m.proposals, &w.proposal)
				} else {
					m.reads = append(m.reads, &w.read)
				}
			}
		})
	if err != nil {
		for i := range all {
			all[i].to.Answered(fsm.Result{}, err)
		}
	}
}

// refuses answers a request that cannot be done now.
func (n *node) refuses(s native.Submission) bool {
	if s.Command == nil {
		return false
	}
	if err := n.admit(); err != nil {
		s.To.Answered(fsm.Result{}, err)
		return true
	}
	if !n.overQuota(s.Command) {
		return false
	}
	go func() { s.To.Answered(n.raiseNoSpace(context.Background())) }()
	return true
}
