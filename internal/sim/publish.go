package sim

import (
	"fmt"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
)

// publish tells those who watch at this member.
func (p *process) publish(out *replica.Output) {
	p.publishEvents(out)
	for i := range out.Changes {
		c := &out.Changes[i]
		p.w.oracle.published(p.m.id, c)
		events := make([]*watched, len(c.Events))
		for k := range c.Events {
			events[k] = &watched{c.Events[k]}
		}
		p.hub.Publish(c.Revision, events)
	}
	if len(out.Changes) > 0 || out.Restored {
		p.hub.Distribute()
		p.poll()
	}
}

// publishEvents is for those who want to know what happens to leases. A snapshot has none
// of what happened before it.
func (p *process) publishEvents(out *replica.Output) {
	o := &p.w.oracle
	if out.Restored {
		p.event = o.lastEvent(p.m.disk.snap.index())
	}
	p.event = o.publishedEvents(p.m.id, p.event, p.view.LeaseEvents)
	if p.event != o.lastEvent(p.view.Index) && out.Applied {
		p.w.broken("W1", fmt.Sprintf("member %d has applied %d, and published events of leases up to %d",
			p.m.id, p.view.Index, p.event))
	}
}

// watched is an event as the hub takes it.
type watched struct{ mvcc.Event }

func (e *watched) Key() string     { return e.KV.Key }
func (e *watched) Revision() int64 { return e.KV.ModRevision }
func (e *watched) IsDelete() bool  { return e.Delete }
func (e *watched) Size() int       { return 1 }

// past is the history of a view, for the hub.
type past struct{ *mvcc.View }

func (h past) Events(key, end string, from int64, most int) ([]*watched, int64, error) {
	changes, next, err := h.EventsIn(key, end, from, most)
	if err != nil {
		return nil, 0, err
	}
	events := make([]*watched, len(changes))
	for i := range changes {
		events[i] = &watched{changes[i]}
	}
	return events, next, nil
}
