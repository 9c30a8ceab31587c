package server

import (
	"context"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

var _ native.Node = (*node)(nil)

// InspectLeases implements native.Node.
func (n *node) InspectLeases(
	ctx context.Context, ids []lease.ID, f func(*lease.Lessor, []replica.Left),
) error {
	c := n.newCall()
	c.read = replica.Read{Leases: ids, Owner: c, Inspect: func(l *lease.Lessor) {
		f(l, c.read.Left)
	}}
	return n.read(ctx, c)
}

// ProposeAll implements native.Node. Like Propose, it acts on behalf of the caller in ctx.
func (n *node) ProposeAll(ctx context.Context, commands []fsm.Command) []native.Outcome {
	out := make([]native.Outcome, len(commands))
	who := api.CallerOf(ctx)
	if err := n.requireLogin(ctx, who); err != nil {
		for i := range out {
			out[i].Result.Err = err
		}
		return out
	}
	wrapped := make([]fsm.Command, len(commands))
	for i, c := range commands {
		wrapped[i] = fsm.OnBehalf(who, c)
	}
	waiting := make([]*call, len(commands))
	err := n.admit(wrapped...)
	if err == nil {
		err = n.leave(ctx, wrapped, waiting)
	}
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	limit, caches := n.patience()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, api.Timeout(caches))
	defer cancel()
	for i, c := range waiting {
		if out[i].Err = n.wait(ctx, c); out[i].Err != nil {
			continue // the core still refers to it
		}
		out[i] = native.Outcome{Result: c.proposal.Result, Err: c.proposal.Err}
		n.countRefusal(out[i].Result.Err)
		n.recycle(c)
	}
	return out
}

// leave puts either all commands or none of them into the inbox.
func (n *node) leave(ctx context.Context, commands []fsm.Command, waiting []*call) error {
	for i, cmd := range commands {
		c := n.newCall()
		c.proposal, c.stages = replica.Proposal{Command: cmd, Owner: c}, n.tracer.Ask(ctx)
		c.proposal.Trace = c.stages.Trace()
		waiting[i] = c
	}
	err := n.inbox.ask(
		func(m *mail) int { return len(m.Proposals) + len(waiting) },
		func(m *mail) {
			for _, c := range waiting {
				m.Proposals = append(m.Proposals, &c.proposal)
			}
		})
	if err != nil {
		for _, c := range waiting {
			n.recycle(c)
		}
	}
	return err
}

// RenewAll implements native.Node. It makes a single request to the core, no matter how many leases
// there are.
func (n *node) RenewAll(r *replica.Renewals) error {
	return n.inbox.ask(
		func(m *mail) int {
			if r.Number > 0 { // one round from a relay replaces many renewals
				return m.renewing / 2
			}
			return m.renewing + r.Size()
		},
		func(m *mail) {
			m.Together = append(m.Together, r)
			m.renewing += r.Size()
		})
}

// EndKeeper implements native.Node.
func (n *node) EndKeeper(by replica.Keeper) {
	// This must come after the renewals of the group. Later renewals would create groups that are
	// never ended.
	end := &replica.Renewals{GroupRenewals: replica.GroupRenewals{Keeper: by, End: true}}
	n.inbox.put(func(m *mail) {
		m.Together = append(m.Together, end)
		m.renewing += end.Size()
	})
}
