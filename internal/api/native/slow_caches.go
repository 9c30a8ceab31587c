package native

import (
	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/lease"
)

// slowReported tracks which slow caches a stream of lease events has reported.
type slowReported struct {
	seen *SlowCaches // as of the last call of changes
	list []SlowCache
}

// changes returns an event for each matching cache that has become slow, or stopped being slow,
// since the last call.
func (t *slowReported) changes(e *events) (out []*pb.LeaseEvent) {
	s := e.node.SlowCaches()
	if s == nil || s == t.seen {
		return nil
	}
	t.seen = s
	now := e.node.Now()
	event := func(kind pb.LeaseEvent_Kind, c *SlowCache) {
		out = append(out, &pb.LeaseEvent{
			Kind: kind, Lease: api.LeaseMessage(&c.Lease), WaitedMs: int64(max(0, now-c.Since)),
		})
	}
	had := slowSet(t.list)
	has := slowSet(s.List)
	for i := range t.list {
		if c := &t.list[i]; !has[incarnationOf(c)] && e.may(&c.Lease) {
			event(pb.LeaseEvent_KIND_CACHE_SLOW_ENDED, c)
		}
	}
	t.list = nil
	for i := range s.List {
		c := &s.List[i]
		if !e.wants(&c.Lease, "") || !e.may(&c.Lease) {
			continue
		}
		t.list = append(t.list, *c)
		if !had[incarnationOf(c)] {
			event(pb.LeaseEvent_KIND_CACHE_SLOW, c)
		}
	}
	return out
}

// incarnation identifies a lease together with its holder.
type incarnation struct {
	id    lease.ID
	token lease.Token
}

func incarnationOf(c *SlowCache) incarnation { return incarnation{c.Lease.ID, c.Lease.Token} }

func slowSet(list []SlowCache) map[incarnation]bool {
	out := make(map[incarnation]bool, len(list))
	for i := range list {
		out[incarnationOf(&list[i])] = true
	}
	return out
}
