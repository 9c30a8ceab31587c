package sim

import (
	"fmt"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
)

// showInRace publishes the new state while waiters are entering wait queues.
func (p *process) showInRace() {
	out := &p.s.Out
	if len(p.late) == 0 || len(out.Changes) == 0 && !out.Restored {
		p.show()
		return
	}
	p.racing = true
	p.someEnter()
	p.race()
	p.someEnter()
}

// race lets the core run until it has published the changes.
func (p *process) race() {
	if !p.racing {
		return
	}
	p.racing = false
	p.show()
	do := p.next()
	for ; do == shell.Follow || do == shell.Publish; do = p.next() {
		p.do(do)
	}
	p.step.ahead = append(p.step.ahead, do)
}

// show publishes the new state.
func (p *process) show() {
	out := &p.s.Out
	p.view = p.s.View
	p.publishEvents(out)
	if out.Restored {
		p.hub.Restore(p.view.KV.Revision())
		p.step.spread = true
		p.snaps.Restored(p.view.Index, 0)
	}
	if p.snaps.Due(p.view.Index, func() uint64 { return 0 }) { // measured in entries, not bytes
		p.snap()
	}
}

// publish passes the changes to the hub. A client that is notified of a change must be able to read
// that change.
func (p *process) publish(out *replica.Output) {
	for i := range out.Changes {
		c := &out.Changes[i]
		p.w.oracle.published(p.m.id, c)
		if shown := p.view.KV.Revision(); c.Revision > shown {
			p.w.broken("W1", fmt.Sprintf("member %d publishes revision %d, and shows revision %d",
				p.m.id, c.Revision, shown))
		}
	}
	api.Publish(p.hub, out.Changes)
	p.step.spread = true
}

// spread schedules the hub's goroutine, possibly with a delay.
func (p *process) spread() {
	if p.w.p.Waiters > 0 && p.w.chance(3) {
		p.distributeLate()
		return
	}
	p.distribute()
}

// distribute performs one round of the hub's goroutine.
func (p *process) distribute() {
	p.hub.Distribute()
	p.poll()
}

// distributeLate simulates a delayed hub goroutine.
func (p *process) distributeLate() {
	p.w.after(p.w.between(Millisecond/10, 200*Millisecond), func() {
		if !p.dead {
			p.deliver(p.distribute)
		}
	})
}

// publishEvents serves clients that read lease events. A snapshot contains no events from before
// it.
func (p *process) publishEvents(out *replica.Output) {
	o := &p.w.oracle
	if out.Restored {
		p.event = o.lastEvent(p.m.disk.snap.index())
	}
	p.event = o.publishedEvents(p.m.id, p.event, p.view.LeaseEvents)
	if p.event != o.lastEvent(p.view.Index) {
		p.w.broken("W1", fmt.Sprintf("member %d has applied %d, and published events of leases up to %d",
			p.m.id, p.view.Index, p.event))
	}
}
