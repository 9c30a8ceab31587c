package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// newExpirer returns the expirer of a primary in term 2, with leases of a second whose IDs are 1
// to n.
func newExpirer(t *testing.T, n lease.ID) *expirer {
	t.Helper()
	machine := fsm.New(fsm.Config{})
	machine.Begin(1, 2)
	for id := range n {
		g := &fsm.Grant{Terms: lease.Terms{ID: id + 1, TTL: 1000}}
		if r := machine.Apply(g); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	m := &local{
		cfg: Config{MaxExpire: 4, ElectionTicks: 10}, machine: machine, lessor: machine.Lessor(),
		role: role{term: 2, leading: true, primary: true},
	}
	m.lessor.Promote(0, 0)
	return &expirer{m: m}
}

func (e *expirer) pass(d lease.Instant) {
	e.m.now += d
	e.m.lessor.Advance(e.m.now)
}

// TestExpirerTakesSome: as many leases as one entry has room for are due at a time, and those of an
// entry that was lost are due again (T12, T13).
func TestExpirerTakesSome(t *testing.T) {
	e := newExpirer(t, 6)
	if due := e.due(); len(due) > 0 {
		t.Fatalf("%d leases are due before their time", len(due))
	}
	e.pass(1500)
	first := e.due()
	c := e.expire(first)
	if len(first) != 4 || c.Term != 2 || !e.expiring || e.overdue() <= 0 {
		t.Fatalf("%d leases in term %d, overdue for %d", len(first), c.Term, e.overdue())
	}
	if _, ok := e.next(); ok {
		t.Error("more is to be done before the outcome is known")
	}
	e.expiring = false
	e.expired(first, e.m.now, false)
	again := append(e.due(), e.due()...)
	if len(again) != 6 || len(e.m.out.Late) != 0 {
		t.Errorf("%d leases are due after an entry was lost, %d are told", len(again), len(e.m.out.Late))
	}
	decided := e.m.now
	e.pass(10)
	e.expired(first, decided, true)
	if late := e.m.out.Late; len(late) != 4 || late[0] != first[0].Late+10 {
		t.Errorf("late %v", late)
	}
}

// TestExpirerCheckpoints: one checkpoint is under way at a time, and what was not replicated is
// told again; the end is told when nothing is left.
func TestExpirerCheckpoints(t *testing.T) {
	e := newExpirer(t, 2)
	e.pass(900) // in which nobody was heard
	done := false
	e.checkpointAll(func() { done = true })
	c, ok := e.checkpoint().(*fsm.Checkpoint)
	if !ok || len(c.Leases) != 2 || e.checkpoint() != nil || done {
		t.Fatalf("%+v, done %v", c, done)
	}
	e.checkpointed(c.Leases, false)
	if again, ok := e.checkpoint().(*fsm.Checkpoint); !ok || len(again.Leases) != 2 {
		t.Fatalf("after a loss: %+v", again)
	}
	e.checkpointed(c.Leases, true)
	if e.checkpoint() != nil || !done {
		t.Errorf("done %v", done)
	}
}

// TestExpirerRefresh: leases get their full time anew only when nothing is under way (T5).
func TestExpirerRefresh(t *testing.T) {
	e := newExpirer(t, 1)
	if e.mayRefresh() {
		t.Error("nobody wants it")
	}
	for name, busy := range map[string]expirer{
		"expiry": {expiring: true}, "checkpoint": {checkpointing: true}, "clearing": {clearing: 1},
	} {
		if busy.refresh = true; busy.mayRefresh() {
			t.Errorf("during a %s", name)
		}
	}
	if e.refresh = true; !e.mayRefresh() {
		t.Error("nothing is under way")
	}
}
