package native

import (
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/channel"
)

var _ channel.Renewer = (*streams)(nil)

// keepUnknown is how long a renewal of a relay of which nothing is known waits here for the confirm
// round. Then it is left to its stream, which tells the client if the round does not end.
const keepUnknown = time.Second

// RenewColumns implements channel.Renewer: it renews leases of many streams at once, and wakes none
// of them. What needs words, or is known in part, is left to the stream, to which the relay sends
// it as any other message. So is what is not known in time.
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
	rows := 0
	for _, r := range list {
		rows += len(r.IDs)
	}
	c := &columnBatch{answer: answer, list: make([]channel.Renewal, 0, len(list))}
	all := &pb.RenewRequest{Ids: make([]int64, 0, rows), Tokens: make([]uint64, 0, rows)}
	for _, r := range list {
		if t, ok := r.Channel.Server().(*stream); !ok || !t.maySurelyRenew(r) {
			left = append(left, r)
			continue
		}
		c.list = append(c.list, r)
		all.Ids, all.Tokens = append(all.Ids, r.IDs...), append(all.Tokens, r.Tokens...)
	}
	if len(c.list) == 0 {
		return left, nil
	}
	c.batch, c.crowded = newBatch(all, s.headerNow()), c.list[0].Channel.Crowded // as leases.renew
	c.tell, c.unknown, c.until = c.tellRest, c.open, time.Now().Add(keepUnknown)
	if err := s.node.RenewAll(&c.asks); err != nil {
		return nil, err
	}
	var look func()
	look = func() {
		if c.look() {
			s.lates.add(look)
		}
	}
	s.lates.add(look)
	return left, nil
}

// maySurelyRenew reports whether the caller is known to hold the leases. If that is by tokens, the
// renewal has them then.
func (t *stream) maySurelyRenew(r channel.Renewal) bool {
	a := t.asker(t.ctx)
	if a.known() != nil {
		return false
	}
	return a.all() || t.renewable.complete(a, r.IDs, r.Tokens)
}

// columnBatch gathers the outcomes of the renewals that came in one message of columns.
type columnBatch struct {
	*batch
	answer  answerPart
	crowded func() bool // the relay has too many for any to wait long
	until   time.Time   // when it waits no longer

	// Guarded by the batch's mu.
	list    []channel.Renewal // in the order of asks; those that were answered have no channel
	unknown int               // leases without an outcome at the last look
}

// tellRest answers all that was not answered. It is called with mu held, and makes the answer
// later.
func (c *columnBatch) tellRest() {
	c.answer(slices.DeleteFunc(slices.Clone(c.list), isAnswered), func() *pb.RelayRenewed {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.over = true
		list, ttls := c.takeLocked(true)
		return channel.Renewed(c.header, list, ttls)
	})
}

// look answers those of which something is known, or all once that is time. It reports whether it
// is to be called again later.
func (c *columnBatch) look() (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open == 0 || c.over:
		return false
	case c.crowded() || !time.Now().Before(c.until):
		c.over = true // what is not known yet will not be
		c.tellRest()
		return false
	case c.open == c.unknown:
		return true
	}
	c.unknown = c.open
	list, ttls := c.takeLocked(false)
	if len(list) == 0 { // it was of what is left to its stream already
		return true
	}
	c.answer(list, func() *pb.RelayRenewed { return channel.Renewed(c.header, list, ttls) })
	c.over = !slices.ContainsFunc(c.list, func(r channel.Renewal) bool { return !isAnswered(r) })
	return !c.over
}

// isAnswered reports whether a renewal of a columnBatch was answered.
func isAnswered(r channel.Renewal) bool { return r.Channel == nil }

// takeLocked takes out those of which something is known, or all that were not answered, with the
// TTL of each of their leases: 0, or less, of one that was not renewed.
func (c *columnBatch) takeLocked(all bool) (list []channel.Renewal, ttls []int64) {
	outcomes := c.ttlsLocked()
	if all { // else it may be few, which wait to be sent
		list, ttls = make([]channel.Renewal, 0, len(c.list)), make([]int64, 0, len(outcomes))
	}
	for i, r := range c.list {
		its := outcomes[:len(r.IDs)]
		outcomes = outcomes[len(r.IDs):]
		if isAnswered(r) || !all && !hasOutcome(its) {
			continue
		}
		list, ttls = append(list, r), append(ttls, its...)
		c.list[i].Channel = nil
	}
	return list, ttls
}

func hasOutcome(ttls []int64) bool {
	for _, ttl := range ttls {
		if ttl >= 0 {
			return true
		}
	}
	return false
}
