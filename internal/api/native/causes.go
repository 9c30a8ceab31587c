package native

import (
	"context"
	"slices"
	"sync"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// maxCauses limits the number of causes that a member keeps.
const maxCauses = 1 << 16

// causes records, by token, why leases ended recently. It reads lease events only when a cause is
// requested, so otherwise events cost nothing. The zero value is empty.
type causes struct {
	mu sync.Mutex // guards the fields below
	at uint64     // number of the last event read
	of map[lease.Token]cause
	// last contains the last token of each ended lease.
	last map[lease.ID]lease.Token
}

// cause describes why a lease ended under one token.
type cause struct {
	id   lease.ID
	kind fsm.LeaseEventKind
	by   string
	of   lease.Terms // only the name and the principal
}

// read reads the events since the previous call.
func (c *causes) read(l fsm.LeaseEvents) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.of) > maxCauses {
		c.of, c.at = nil, 0
	}
	if c.of == nil {
		c.of, c.last = make(map[lease.Token]cause), make(map[lease.ID]lease.Token)
	}
	for c.at = max(c.at, l.Compacted()); c.at < l.Last(); {
		piece, err := l.After(c.at)
		if err != nil {
			return // unreachable: these events have not been compacted
		}
		for i := range piece {
			c.add(&piece[i])
			c.at = piece[i].Seq
		}
	}
}

// add records an event.
func (c *causes) add(e *fsm.LeaseEvent) {
	switch e.Kind {
	case fsm.LeaseExpired, fsm.LeaseRevoked:
		c.of[e.Info.Token] = cause{e.Info.ID, e.Kind, e.By, belonging(&e.Info)}
		c.last[e.Info.ID] = e.Info.Token
	case fsm.LeaseHandedOver, fsm.LeaseResumed:
		c.of[e.Before] = cause{e.Info.ID, e.Kind, e.Info.Owner, belonging(&e.Info)}
	}
}

// belonging returns the terms that determine who may see a lease.
func belonging(i *lease.Info) lease.Terms {
	return lease.Terms{Name: i.Name, Principal: i.Principal}
}

// explain fills in the cause in the result of each lost lease that the caller may see. It returns
// the leases whose cause is unknown.
func (c *causes) explain(a authorizer, list []lostLease) (rest []lostLease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range list {
		token := l.token
		if token == 0 {
			token = c.last[lease.ID(l.result.Id)]
		}
		if why, ok := c.of[token]; ok && int64(why.id) == l.result.Id {
			if a.seesAll() || a.maySee(&lease.Info{Terms: why.of}) {
				l.result.Cause, l.result.By = eventTypes[why.kind], why.by
			}
		} else {
			rest = append(rest, l)
		}
	}
	return rest
}

// lostLease is a lease that has ended. The token is the one in the holder's request, or 0.
type lostLease struct {
	result *pb.RenewResult
	token  lease.Token
}

// explain fills in the cause in the result of each lost lease. The leader reported the loss, so it
// may be ahead of this member. A confirm round lets this member catch up. explain waits for that
// only briefly, and only if the caller sent a token.
func (s *leases) explain(ctx context.Context, list []lostLease) {
	if len(list) == 0 {
		return
	}
	s.causes.read(s.node.View().LeaseEvents)
	list = s.causes.explain(s.authorizer(ctx), list)
	if !slices.ContainsFunc(list, func(l lostLease) bool { return l.token != 0 }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, partialAfter)
	defer cancel()
	if err := s.node.Inspect(ctx, func(*lease.Lessor) {}); err == nil {
		s.causes.read(s.node.View().LeaseEvents)
		s.causes.explain(s.authorizer(ctx), list)
	}
}
