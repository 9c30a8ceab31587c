package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// newExpirer returns the expirer of a primary in term 2 with leases 1 to n, each with a TTL of one
// second.
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
	machine.Lessor().Promote(0)
	return &expirer{machine: machine, lessor: machine.Lessor(), term: 2}
}

// at moves the lessor's clock to now.
func (e *expirer) at(now lease.Instant) lease.Instant {
	e.lessor.Advance(now)
	return now
}

// TestExpirerTakesSome checks that due leases are taken one entry at a time. If an entry is lost,
// its leases become due again (T12, T13).
func TestExpirerTakesSome(t *testing.T) {
	e := newExpirer(t, 6)
	if due := e.due(0, 4); len(due) > 0 {
		t.Fatalf("%d leases due too early", len(due))
	}
	now := e.at(1500)
	first := e.due(now, 4)
	c := e.expire(first, now)
	if len(first) != 4 || c.Term != 2 || !e.expiring || e.overdue(now) != first[0].Late {
		t.Fatalf("%d leases in term %d, overdue for %d", len(first), c.Term, e.overdue(now))
	}
	if late := e.overdue(now + 7); late != first[0].Late+7 {
		t.Errorf("overdue for %d, and for %d before", late, first[0].Late)
	}
	if _, ok := e.next(now); ok {
		t.Error("more work before the outcome is known")
	}
	e.expiring = false
	if late := e.overdue(now); late != 0 {
		t.Errorf("nothing in flight, and overdue for %d", late)
	}
	e.lessor.Reinstate(first)
	if at, ok := e.next(now); at != now || !ok {
		t.Errorf("an expiry failed at %d; next attempt at %d", now, at)
	}
	e.pause(now)
	if at, ok := e.next(now); at != now+retryEvery || !ok || len(e.due(now, 4)) > 0 {
		t.Errorf("Raft refused an entry at %d; next attempt at %d", now, at)
	}
	now = e.at(now + retryEvery)
	again := append(e.due(now, 4), e.due(now, 4)...)
	if len(again) != 6 {
		t.Errorf("%d leases due after a lost entry", len(again))
	}
}

// TestExpiryReportsDelay checks that Output.Late includes the time that the entry took.
func TestExpiryReportsDelay(t *testing.T) {
	m := lead(t)
	m.grant(1, 1000)
	m.now += 1500
	m.r.Advance(m.now)
	m.take()
	overdue := m.r.Status().Overdue
	m.now += 10
	m.r.Advance(m.now)
	m.persist()
	if late := m.r.Take().Late; overdue == 0 || !slices.Equal(late, []lease.TTL{overdue + 10}) {
		t.Errorf("late by %v ms, decided %d ms after the expiry", late, overdue)
	}
}

// TestExpirerCheckpoints checks that only one checkpoint is in flight at a time and that a lost
// checkpoint is retried. The callback runs once no lease needs a checkpoint.
func TestExpirerCheckpoints(t *testing.T) {
	e := newExpirer(t, 2)
	now := e.at(900) // no renewals
	done := false
	e.checkpointAll(func() { done = true })
	c, ok := e.checkpoint(now, 4).(*fsm.Checkpoint)
	if !ok || len(c.Leases) != 2 || e.checkpoint(now, 4) != nil || done {
		t.Fatalf("%+v, done %v", c, done)
	}
	e.pause(now)
	e.checkpointed(c.Leases, false)
	if at, _ := e.next(now); at != now+retryEvery || e.checkpoint(now, 4) != nil {
		t.Errorf("Raft refused a checkpoint at %d; next attempt at %d", now, at)
	}
	now = e.at(now + retryEvery)
	if again, ok := e.checkpoint(now, 4).(*fsm.Checkpoint); !ok || len(again.Leases) != 2 {
		t.Fatalf("after a lost entry: %+v", again)
	}
	e.checkpointed(c.Leases, true)
	if e.checkpoint(now, 4) != nil || !done {
		t.Errorf("done %v", done)
	}
}

// TestExpirerNext checks that a leader wakes up when a lease becomes due or silent. While silent
// leases are pending, it wakes up when the next lease is due or the wait ends. It wakes up
// immediately if it has to checkpoint before it stops.
func TestExpirerNext(t *testing.T) {
	const due, silent = -1, -2
	for name, c := range map[string]struct {
		now  lease.Instant
		set  func(e *expirer)
		want lease.Instant // 0: never; due, silent: the instant reported by the lessor
	}{
		"at first, when they become silent":  {10, func(*expirer) {}, silent},
		"silent":                             {600, func(*expirer) {}, 600},
		"it does not lead":                   {600, func(e *expirer) { e.lessor.Demote() }, 0},
		"an expiry is in flight":             {600, func(e *expirer) { e.expiring = true }, 0},
		"the clock is not trusted":           {600, func(e *expirer) { e.refresh = true }, 0},
		"a checkpoint is in flight":          {600, func(e *expirer) { e.checkpointing = true }, due},
		"more leases may become silent":      {600, func(e *expirer) { e.silence = 650 }, 650},
		"no more leases":                     {600, func(e *expirer) { e.silence = 600 }, 600},
		"a lease is due first":               {600, func(e *expirer) { e.silence = 1400 }, due},
		"not silent, and more may become so": {10, func(e *expirer) { e.silence = 300 }, silent},
		"already due":                        {1500, func(e *expirer) { e.checkpointing = true }, 1501},
		"stopping":                           {10, func(e *expirer) { e.afterAll = func() {} }, 10},
		"stopping after a checkpoint": {10, func(e *expirer) {
			e.afterAll, e.checkpointing = func() {}, true
		}, silent},
	} {
		e := newExpirer(t, 2)
		e.at(c.now)
		switch c.want {
		case silent:
			c.want, _ = e.lessor.Next()
		case due:
			c.want, _ = e.lessor.NextDue()
		}
		c.set(e)
		if at, ok := e.next(c.now); at != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %d, %v, want %d", name, at, ok, c.want)
		}
	}
}

// TestGateNext checks that a leader wakes up when a cache that delays a write becomes late or its
// lease ends. It wakes up immediately while commands wait for the next step, and not at all while
// it distrusts its clock.
func TestGateNext(t *testing.T) {
	e := newExpirer(t, 0)
	var now lease.Instant
	g := gate{term: 2, machine: e.machine, leases: leases{e.lessor, e}}
	next := func(what string, at lease.Instant, ok bool, want lease.Instant) {
		t.Helper()
		if got, ok := g.next(now, at, ok); got != want || ok != (want != 0) {
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
	if r := e.machine.Apply(c); r.Err != nil {
		t.Fatal(r.Err)
	}
	g.open(now)
	next("nothing waits", 0, false, 0)
	next("nothing waits", 70, true, 70)
	if now, err := g.caches.Admit(&directory.Write{Touches: all}); now || err != nil {
		t.Fatal(now, err)
	}
	next("a write waits", 0, false, 1000) // until the cache is late
	next("a write waits", 70, true, 70)
	next("a write waits", 5000, true, 1000)
	e.refresh = true
	next("the clock is not trusted", 0, false, 0)
	next("the clock is not trusted", 5000, true, 5000)
	e.refresh = false
	now = e.at(1500)
	next("it is late, and no step has looked", 5000, true, 1501)
	g.early = []*Proposal{nil}
	next("commands wait", 5000, true, 1500)
	next("commands wait", 0, false, 1500)
}
