package sim

import (
	"fmt"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
)

// publish tells those who watch at this member, and those who wait in lines.
func (p *process) publish(out *replica.Output) {
	p.publishEvents(out)
	switch {
	case len(out.Changes) == 0 && !out.Restored:
		return
	case len(p.late) > 0:
		p.racing = func() { p.show(out) }
		p.someEnter()
		p.race()
		p.someEnter()
	default:
		p.show(out)
	}
	if p.w.p.Liners > 0 && p.w.chance(3) {
		p.distributeLate()
		return
	}
	p.distribute()
}

// show lets all see the new state, and the hub what has changed.
func (p *process) show(out *replica.Output) {
	p.shown = p.view.KV
	for i := range out.Changes {
		p.w.oracle.published(p.m.id, &out.Changes[i])
	}
	if !out.Restored { // else the hub was told of a state that shows the changes, too
		api.Publish(p.hub, out.Changes)
	}
}

// distribute is what the hub's goroutine does.
func (p *process) distribute() {
	p.hub.Distribute()
	p.poll()
}

// distributeLate is distribute by a goroutine that was held up.
func (p *process) distributeLate() {
	p.w.after(p.w.between(Millisecond/10, 200*Millisecond), func() {
		if !p.dead {
			p.deliver(p.distribute)
		}
	})
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
