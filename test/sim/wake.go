package sim

import "slices"

// deliver queues a task for the process's next step.
func (p *process) deliver(task func()) {
	p.mail.Tasks = append(p.mail.Tasks, task)
	p.wake(p.w.now)
}

// wake schedules a step shortly after t, so that messages that arrive at the same time are
// processed together.
func (p *process) wake(t Time) {
	t = max(t, p.frozen)
	if t <= p.w.now {
		t = p.w.now + 20
	}
	if p.dead || t >= p.wakeAt {
		return
	}
	p.wakeAt = t
	p.alarms.set(p.w, t)
}

// alarm handles an event of the world's queue.
func (p *process) alarm() {
	t := p.w.now
	p.alarms.rang(t)
	switch {
	case p.dead || p.wakeAt != t:
	case p.frozen > t:
		p.wakeAt = Never
		p.wake(p.frozen)
	case p.step.within:
		p.wakeAt, p.step.rung = Never, true
	default:
		p.wakeAt = Never
		p.run()
	}
}

// waker schedules a step.
type waker struct {
	of   *world
	next Time // the next step, or Never
	step func()
}

// wake schedules a step no later than the given instant.
func (a *waker) wake(at Time) {
	at = max(at, a.of.now)
	if at >= a.next {
		return
	}
	a.next = at
	a.of.at(at, func() {
		if a.next == at {
			a.next = Never
			a.step()
		}
	})
}

// alarms holds the times at which the queue has an event for a process. When an event occurs, the
// process steps only if it is due to wake. If mail causes an earlier step, the event for the later
// step stays in the queue and is reused.
type alarms struct {
	ring func()
	at   []Time
}

func (a *alarms) set(w *world, t Time) {
	if !slices.Contains(a.at, t) {
		a.at = append(a.at, t)
		w.at(t, a.ring)
	}
}

func (a *alarms) rang(t Time) {
	if i := slices.Index(a.at, t); i >= 0 {
		a.at = slices.Delete(a.at, i, i+1)
	}
}
