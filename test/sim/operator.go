package sim

import (
	"slices"

	"leasehold.dev/internal/fsm"
)

// membershipChange is a membership change for the operator to make.
type membershipChange struct {
	remove, add uint64
}

// operate executes the operator's tasks in order and retries each until it is done.
func (t *thread) operate() {
	n := &t.c.w.injector
	for {
		t.sleep(200 * Millisecond)
		if len(n.changes) == 0 {
			continue
		}
		o := n.changes[0]
		if o.remove != 0 {
			t.insist(&fsm.RemoveMember{ID: o.remove}, func(v *fsm.View) bool {
				return !slices.ContainsFunc(v.Members, func(m fsm.Member) bool { return m.ID == o.remove })
			})
		}
		if o.add != 0 {
			t.join(o.add)
		}
		n.changes = n.changes[1:]
	}
}

// insist repeats a command until the world observes its effect.
func (t *thread) insist(c fsm.Command, done func(*fsm.View) bool) {
	for !done(t.c.w.oracle.machine.View()) {
		t.command(c)
		t.sleep(200 * Millisecond)
	}
}

// join adds a learner, starts it, and promotes it once it has caught up.
func (t *thread) join(id uint64) {
	w := t.c.w
	n := named(id)
	n.Learner, n.Incarnation = true, id
	t.insist(&fsm.AddMember{Member: n}, func(v *fsm.View) bool {
		return slices.ContainsFunc(v.Members, func(m fsm.Member) bool { return m.ID == id })
	})
	if m := w.members[id-1]; m.proc == nil && m.fresh {
		m.start()
	}
	t.announce(id)
	t.insist(&fsm.PromoteMember{ID: id}, func(v *fsm.View) bool {
		return !slices.ContainsFunc(v.Members, func(m fsm.Member) bool { return m.ID == id && m.Learner })
	})
	w.cover["joiner promoted"]++
}
