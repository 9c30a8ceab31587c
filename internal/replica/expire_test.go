package replica

import (
	"testing"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// newExpirer returns the expirer of a primary in term 2, with leases of a second whose IDs are 1
// to n.
func newExpirer(t *testing.T, n lease.ID) *expirer {
	t.Helper()
	return newExpirerWith(t, lease.Config{}, n)
}

func newExpirerWith(t *testing.T, c lease.Config, n lease.ID) *expirer {
	t.Helper()
	machine := fsm.New(fsm.Config{Lease: c})
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
	m.lessor.Promote(0)
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
	if len(first) != 4 || c.Term != 2 || !e.expiring || e.overdue() != first[0].Late {
		t.Fatalf("%d leases in term %d, overdue for %d", len(first), c.Term, e.overdue())
	}
	e.m.now += 7
	if late := e.overdue(); late != first[0].Late+7 {
		t.Errorf("overdue for %d, and for %d before", late, first[0].Late)
	}
	e.m.now -= 7
	if _, ok := e.next(); ok {
		t.Error("more is to be done before the outcome is known")
	}
	e.expiring = false
	if late := e.overdue(); late != 0 {
		t.Errorf("nothing is under way, and overdue for %d", late)
	}
	e.expired(first, e.m.now, false)
	if at, ok := e.next(); at != e.m.now || !ok {
		t.Errorf("at %d an expiry was not applied, and the next try is at %d", e.m.now, at)
	}
	e.pause()
	if at, ok := e.next(); at != e.m.now+retryEvery || !ok || len(e.due()) > 0 {
		t.Errorf("at %d Raft refused an entry, and the next try is at %d", e.m.now, at)
	}
	e.pass(retryEvery)
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
	e.pause()
	e.checkpointed(c.Leases, false)
	if at, _ := e.next(); at != e.m.now+retryEvery || e.checkpoint() != nil {
		t.Errorf("at %d Raft refused a checkpoint, and the next try is at %d", e.m.now, at)
	}
	e.pass(retryEvery)
	if again, ok := e.checkpoint().(*fsm.Checkpoint); !ok || len(again.Leases) != 2 {
		t.Fatalf("after a loss: %+v", again)
	}
	e.checkpointed(c.Leases, true)
	if e.checkpoint() != nil || !done {
		t.Errorf("done %v", done)
	}
}

// TestExpirerNext: a leader wakes up when a lease is due or silent; while silent ones wait, for an
// outcome or for others, when the next lease is due or their time has come; and at once for what it
// has to do before it stops.
func TestExpirerNext(t *testing.T) {
	const due, silent = -1, -2
	for name, c := range map[string]struct {
		pass lease.Instant
		set  func(e *expirer)
		want lease.Instant // 0: nothing; due, silent: when the lessor says so
	}{
		"at first, until they are silent": {10, func(*expirer) {}, silent},
		"silent":                          {600, func(*expirer) {}, 600},
		"it does not lead":                {600, func(e *expirer) { e.m.primary = false }, 0},
		"an end is under way":             {600, func(e *expirer) { e.expiring = true }, 0},
		"the clock is not trusted":        {600, func(e *expirer) { e.refresh = true }, 0},
		"a checkpoint is under way":       {600, func(e *expirer) { e.checkpointing = true }, due},
		"others may come":                 {600, func(e *expirer) { e.silence = 650 }, 650},
		"no more":                         {600, func(e *expirer) { e.silence = 600 }, 600},
		"it is due before others":         {600, func(e *expirer) { e.silence = 1400 }, due},
		"not silent, and others may come": {10, func(e *expirer) { e.silence = 300 }, silent},
		"it is due already":               {1500, func(e *expirer) { e.checkpointing = true }, 1501},
		"it is to stop":                   {10, func(e *expirer) { e.afterAll = func() {} }, 10},
		"it is to stop, after a checkpoint": {10, func(e *expirer) {
			e.afterAll, e.checkpointing = func() {}, true
		}, silent},
	} {
		e := newExpirer(t, 2)
		e.pass(c.pass)
		switch c.want {
		case silent:
			c.want, _ = e.m.lessor.Next()
		case due:
			c.want, _ = e.m.lessor.NextDue()
		}
		c.set(e)
		if at, ok := e.next(); at != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %d, %v, want %d", name, at, ok, c.want)
		}
	}
}

// TestExpirerNextWithoutLeases: a leader without leases does not wake up for those that might have
// gathered since the last checkpoint.
func TestExpirerNextWithoutLeases(t *testing.T) {
	e := newExpirer(t, 0)
	e.silence = 300
	if at, ok := e.next(); ok {
		t.Errorf("it wakes up at %d", at)
	}
}

// TestGateNext: a leader wakes up when a cache is over or late for which a write waits, if nothing
// else wakes it before; not while it does not trust the clock, which says nothing of that; and at
// once while commands wait for a step that has time for them.
func TestGateNext(t *testing.T) {
	e := newExpirer(t, 0)
	g := gate{m: e.m, leases: leases{e.m, e}}
	next := func(what string, at lease.Instant, ok bool, want lease.Instant) {
		t.Helper()
		if got, ok := g.next(at, ok); got != want || ok != (want != 0) {
			t.Errorf("%s: %d, %v, want %d", what, got, ok, want)
		}
	}
	next("before it is primary", 0, false, 0)
	next("before it is primary", 70, true, 70)
	g.early = []*Proposal{nil}
	next("commands wait until it is primary", 0, false, 0)
	g.early = nil
	all := []keyrange.Range{keyrange.All}
	c := &fsm.Grant{Terms: lease.Terms{ID: 9, TTL: 60_000}, Holds: all}
	if r := e.m.machine.Apply(c); r.Err != nil {
		t.Fatal(r.Err)
	}
	g.open()
	next("nothing waits", 0, false, 0)
	next("nothing waits", 70, true, 70)
	if now, err := g.caches.Admit(&directory.Write{Touches: all}); now || err != nil {
		t.Fatal(now, err)
	}
	next("a write waits", 0, false, 1000) // until its cache is late
	next("a write waits", 70, true, 70)
	next("a write waits", 5000, true, 1000)
	e.refresh = true
	next("the clock is not trusted", 0, false, 0)
	next("the clock is not trusted", 5000, true, 5000)
	e.refresh = false
	e.pass(1500)
	next("it is late, and nobody has looked", 5000, true, 1501)
	g.early = []*Proposal{nil}
	next("commands wait", 5000, true, 1500)
	next("commands wait", 0, false, 1500)
}
