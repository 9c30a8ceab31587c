package native

import (
	"context"
	"slices"
	"sync"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// maxCauses bounds the causes that are remembered.
const maxCauses = 1 << 16

// causes are how leases have ended lately, by the tokens that they had. They are read from the
// events of leases when somebody asks, so that events cost nothing as long as nobody does. The
// zero causes are empty.
type causes struct {
	mu sync.Mutex // guards what follows
	at uint64     // number of the last event that was read
	of map[lease.Token]cause
	// last are the last tokens of leases that are gone.
	last map[lease.ID]lease.Token
}

// cause is how a lease ended under one token.
type cause struct {
	id   lease.ID
	kind fsm.LeaseEventKind
	by   string
	of   lease.Terms // whose it was
}

// read reads the events that were not read before.
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
			return // it was asked for what is kept
		}
		for i := range piece {
			c.add(&piece[i])
			c.at = piece[i].Seq
		}
	}
}

// add takes an event.
func (c *causes) add(e *fsm.LeaseEvent) {
	switch e.Kind {
	case fsm.LeaseExpired, fsm.LeaseRevoked:
		c.of[e.Info.Token] = cause{e.Info.ID, e.Kind, e.By, belonging(&e.Info)}
		c.last[e.Info.ID] = e.Info.Token
	case fsm.LeaseHandedOver, fsm.LeaseResumed:
		c.of[e.Before] = cause{e.Info.ID, e.Kind, e.Info.Owner, belonging(&e.Info)}
	}
}

// belonging returns those terms that decide who may be told of a lease.
func belonging(i *lease.Info) lease.Terms {
	return lease.Terms{Name: i.Name, Principal: i.Principal}
}

// explain says in results why leases are gone, to callers that may know it, and returns those of
// which it does not know.
func (c *causes) explain(a asker, list []lostLease) (rest []lostLease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range list {
		token := l.token
		if token == 0 {
			token = c.last[lease.ID(l.result.Id)]
		}
		if why, ok := c.of[token]; ok && int64(why.id) == l.result.Id {
			if a.all() || a.sees(&lease.Info{Terms: why.of}) {
				l.result.Cause, l.result.By = eventTypes[why.kind], why.by
			}
		} else {
			rest = append(rest, l)
		}
	}
	return rest
}

// lostLease is a lease that is gone, and the token by which its holder knew it, 0 for none.
type lostLease struct {
	result *pb.RenewResult
	token  lease.Token
}

// explain says in results why leases are gone. This member may know less than the one that
// leads, which said so: after a confirm round it knows as much. The cause is worth no more than
// a moment, and to callers that know no token not even that.
func (s *leases) explain(ctx context.Context, list []lostLease) {
	if len(list) == 0 {
		return
	}
	s.causes.read(s.node.View().LeaseEvents)
	list = s.causes.explain(s.asker(ctx), list)
	if !slices.ContainsFunc(list, func(l lostLease) bool { return l.token != 0 }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, partly)
	defer cancel()
	if err := s.node.Inspect(ctx, func(*lease.Lessor) {}); err == nil {
		s.causes.read(s.node.View().LeaseEvents)
		s.causes.explain(s.asker(ctx), list)
	}
}
