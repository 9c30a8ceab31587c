package sim

import (
	"slices"

	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// renewals holds the renewals in a keeper's message. The replica processes them together.
type renewals []*call

// renewalsIn returns how many calls at the front are renewals from the same message.
func renewalsIn(calls []*call) int {
	first := calls[0]
	keeper, ok := first.who.(*keeper)
	if first.op.Kind == opGroups {
		return 1
	}
	if !ok || first.op.Kind != opRenew {
		return 0
	}
	other := func(q *call) bool { return q.who != keeper || q.token != first.token }
	if n := slices.IndexFunc(calls, other); n >= 0 {
		return n
	}
	return len(calls)
}

// arrive passes calls to the core.
func (p *process) arrive(calls []*call) {
	for calls = p.permit(calls); len(calls) > 0; {
		n := renewalsIn(calls)
		if n > 0 {
			p.s.Mail.Together = append(p.s.Mail.Together, newRenewals(calls[:n]))
		} else {
			n = 1
			if q := calls[0]; !q.look(p) {
				q.arrive(p)
			}
		}
		calls = calls[n:]
	}
}

func newRenewals(calls []*call) *replica.Renewals {
	if calls[0].op.Kind == opGroups {
		return newGroupRenewals(calls[0])
	}
	b := &replica.Renewals{
		IDs: make([]lease.ID, len(calls)), TTLs: make([]lease.TTL, len(calls)),
		Tokens: make([]lease.Token, len(calls)), Owner: renewals(slices.Clone(calls)),
	}
	b.Access = accessOf(calls)
	if s := calls[0].stream; s != nil {
		b.Keeper = s.id
	}
	bare := true
	for i, q := range calls {
		b.IDs[i], b.Tokens[i] = q.op.Lease, q.op.Request.Token
		bare = bare && b.Tokens[i] == 0
	}
	if bare {
		b.Tokens = nil
	}
	return b
}

// renewed answers the renewals in a step's output.
func (p *process) renewed(out *replica.Output) {
	for i := range out.Renewals {
		n := &out.Renewals[i]
		q, ok := n.Owner.(*call)
		if !ok {
			p.w.cover["renewal of a message answered by itself"]++
			q = n.Owner.(renewals)[n.Place]
		}
		q.renewed(p, n)
	}
	for _, b := range out.Groups {
		answerGroups(b)
	}
	for _, b := range out.Together {
		if b.Kept > 1 {
			p.w.cover["renewals answered together"]++
		}
		s := b.Owner.(renewals)[0].stream
		relayed := s != nil && s.via != nil
		if relayed && b.Joined != nil {
			s.via.joined(b)
		}
		for i, q := range b.Owner.(renewals) {
			if b.Joined != nil && !relayed {
				q.joined = b.Joined[i]
			}
			if b.TTLs[i] > 0 {
				q.renewed(p, &replica.Renewal{TTL: b.TTLs[i]})
			}
		}
	}
}
