package native

import (
	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
	"leasehold.dev/lease"
)

var _ channel.Renewer = (*streams)(nil)

// RenewColumns implements channel.Renewer: it renews leases of many streams at once, and wakes none
// of them. What is not known soon, or needs words, is left to the stream, to which the relay sends
// it as any other message.
func (s *streams) RenewColumns(list []channel.Renewal, answer answerPart) {
	left, err := s.renewColumns(list, answer)
	if err != nil {
		left = list
	}
	if len(left) > 0 {
		answer(left, func() *pb.RelayRenewed { return channel.Renewed(nil, left, nil) })
	}
}

// answerPart takes what makes the answer to a part of the renewals.
type answerPart = func(part []channel.Renewal, f func() *pb.RelayRenewed)

// renewColumns returns those that it does not answer; all, if there is an error.
func (s *streams) renewColumns(
	list []channel.Renewal, answer answerPart,
) (left []channel.Renewal, err error) {
	defer s.o.Panics.End("renewals of a relay", &err)
	var sure []channel.Renewal
	all := &pb.RenewRequest{}
	for _, r := range list {
		if t, ok := r.Channel.Server().(*stream); !ok || !t.maySurelyRenew(r) {
			left = append(left, r)
			continue
		}
		sure = append(sure, r)
		all.Ids, all.Tokens = append(all.Ids, r.IDs...), append(all.Tokens, r.Tokens...)
	}
	if len(sure) == 0 {
		return left, nil
	}
	b := newBatch(all, s.headerNow()) // as of before, see leases.renew
	tell := func() {
		answer(sure, func() *pb.RelayRenewed {
			resp := b.end()
			return channel.Renewed(resp.Header, sure, resp.TtlMs)
		})
	}
	b.tell = tell
	if err := s.node.RenewAll(&b.asks); err != nil {
		return nil, err
	}
	s.lates.add(b, func(<-chan struct{}) { tell() })
	return left, nil
}

// maySurelyRenew reports whether the caller is known to hold the leases.
func (t *stream) maySurelyRenew(r channel.Renewal) bool {
	a := t.asker(t.ctx)
	if a.known() != nil {
		return false
	}
	if a.all() {
		return true
	}
	ids, tokens := make([]lease.ID, len(r.IDs)), make([]lease.Token, len(r.IDs))
	for i := range ids {
		ids[i], tokens[i] = lease.ID(r.IDs[i]), lease.Token(r.Tokens[i])
	}
	return len(t.rights.renewable.unknown(a, ids, tokens)) == 0
}
