package replica

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
)

// comparing returns a cluster whose leader has compared the states once and compares them again
// every second.
func comparing(t *testing.T, voters ...uint64) (c *cluster, leader *peer) {
	c = newCluster(t, voters...)
	for _, p := range c.members {
		p.r.cfg.CompareTicks = 10
	}
	c.pass(3000)
	for _, p := range c.members {
		if p.r.primary {
			leader = p
		}
	}
	if leader == nil || leader.r.machine.HashedAt() == 0 || len(leader.r.machine.View().Alarms) > 0 {
		t.Fatal("no comparison has happened, or members differ")
	}
	return c, leader
}

// damage changes a member's state without writing a log entry.
func damage(p *peer) { p.r.machine.Apply(&fsm.Put{Key: "damaged"}) }

// TestDamagedMemberStops checks that a member whose state differs stops, even if it leads, and
// cannot restart from its data. The other members continue.
func TestDamagedMemberStops(t *testing.T) {
	for _, leads := range []bool{true, false} {
		c, bad := comparing(t, 1, 2, 3)
		if !leads {
			bad = c.members[bad.id%3+1]
		}
		damage(bad)
		c.pass(4000)
		for _, p := range c.members {
			if p == bad {
				if !errors.Is(p.failed, ErrDamaged) {
					t.Errorf("leads %v: stopped with %v", leads, p.failed)
				}
				continue
			}
			if p.failed != nil || !p.r.machine.IsDamaged(bad.id) {
				t.Errorf("leads %v: member %d: %v, alarms %v", leads, p.id, p.failed,
					p.r.machine.View().Alarms)
			}
			c.propose(p, &fsm.Put{Key: "k"}, "put")
		}
		c.pass(100)
		if c.state(); len(c.open) > 0 {
			t.Errorf("leads %v: no outcome of %v", leads, c.open)
		}
		bad.failed = nil
		c.start(bad)
		if c.pass(2000); !errors.Is(bad.failed, ErrDamaged) {
			t.Errorf("leads %v: restart: %v", leads, bad.failed)
		}
	}
}

// TestHashesOnlyFromOwner checks that a member can report only its own hash, and that hashes are
// requested only when due.
func TestHashesOnlyFromOwner(t *testing.T) {
	for _, c := range []struct {
		from    uint64 // 0 for the leader itself
		command fsm.Command
		refused bool
	}{
		{2, &fsm.StateHash{Member: 2, Index: 1}, false},
		{0, &fsm.StateHash{Member: self}, false},
		{2, &fsm.StateHash{Member: 3, Index: 1}, true},
		{0, &fsm.StateHash{Member: 2}, true},
		{2, &fsm.StateHash{Member: self}, true},
		{2, &fsm.StateHash{}, true},
		{0, &fsm.StateHash{}, true},
		{2, &fsm.HashState{}, true},
		{0, &fsm.HashState{}, true},
	} {
		l, p := lead(t), &Proposal{Command: c.command, origin: fsm.Origin{Member: c.from}}
		l.r.lead.propose(p)
		refused := errors.Is(p.Err, ErrInternal)
		if c.from != 0 {
			reply := l.r.lead.remotes.of(c.from).reply
			refused = reply != nil && len(reply.Refused) == 1
		}
		admitted := len(l.r.lead.queue.waiting) > 0
		if refused != c.refused || admitted == refused {
			t.Errorf("%d: %T %+v: refused %v, admitted %v", c.from, c.command, c.command, refused, admitted)
		}
	}
}

// TestDamagedSnapshot checks that a member stops when it receives a snapshot in which it is marked
// as damaged. Here the member is cut off after reporting its hash, and the log before the snapshot
// is gone.
func TestDamagedSnapshot(t *testing.T) {
	c, leader := comparing(t, 1, 2, 3)
	bad, before := c.members[leader.id%3+1], leader.r.machine.HashedAt()
	damage(bad)
	c.lose = func(m *Message) bool { return m.To == bad.id && bad.r.machine.HashedAt() > before }
	if c.pass(2000); !leader.r.machine.IsDamaged(bad.id) || bad.failed != nil {
		t.Fatalf("alarms %v, stopped with %v", leader.r.machine.View().Alarms, bad.failed)
	}
	for _, p := range c.members {
		if p != bad {
			c.check(p.log.Compact(p.r.machine.Index()))
		}
	}
	for _, p := range c.members {
		p.r.cfg.CompareTicks = 0 // write no entry after the snapshot
	}
	c.lose = nil
	if c.pass(2000); !errors.Is(bad.failed, ErrDamaged) {
		t.Errorf("stopped with %v", bad.failed)
	}
	bad.failed = nil
	c.start(bad)
	if c.step(bad); !errors.Is(bad.failed, ErrDamaged) {
		t.Errorf("after a restart, stopped with %v", bad.failed)
	}
}

// TestReportHashOfRequestedState checks that a member reports only the most recently requested
// hash.
func TestReportHashOfRequestedState(t *testing.T) {
	_, leader := comparing(t, 1, 2)
	of, before := leader.r.machine.Image(), leader.r.Status().Pending
	if of.View.Index <= leader.r.machine.HashedAt() {
		t.Fatal("the state is the requested one")
	}
	leader.r.ReportHash(of, 1, nil)
	if n := leader.r.Status().Pending; n != before {
		t.Errorf("%d commands in flight, %d before", n, before)
	}
}

// TestCompareTicks checks that a leader first compares the states after a tenth of
// Config.CompareTicks, and then every CompareTicks. It does so only once it is primary and has
// another member.
func TestCompareTicks(t *testing.T) {
	for _, x := range []struct {
		name    string
		others  bool
		primary bool
		want    []int
	}{
		{"with another member", true, true, []int{5, 55, 105}},
		{"alone", false, true, nil},
		{"not primary", true, false, nil},
	} {
		m := start(t)
		m.r.cfg.CompareTicks = 50
		m.m.AddMember(fsm.Member{ID: self})
		if x.others {
			m.m.AddMember(fsm.Member{ID: 2})
		}
		for range 3 { // the leader starts in the first step
			m.r.Tick()
		}
		if err := m.r.Campaign(); err != nil {
			t.Fatal(err)
		}
		m.settle()
		if !x.primary {
			m.r.lead.demote()
		}
		var asked []int
		for tick := range 120 {
			m.r.Tick()
			if len(m.r.lead.queue.waiting)+len(m.r.lead.gate.early) > 0 {
				asked = append(asked, tick+1)
			}
			m.settle()
		}
		if !slices.Equal(asked, x.want) {
			t.Errorf("%s: requested at ticks %v, want %v", x.name, asked, x.want)
		}
	}
}

// TestSplitMembers checks that when two members differ, both continue but reject writes, because
// neither is known to be correct.
func TestSplitMembers(t *testing.T) {
	c, leader := comparing(t, 1, 2)
	damage(leader)
	c.pass(2000)
	for _, p := range c.members {
		if got := p.r.machine.View().Alarms; p.failed != nil ||
			!slices.Equal(got, []fsm.Alarm{{Kind: fsm.Split}}) {
			t.Errorf("member %d: %v, alarms %v", p.id, p.failed, got)
		}
	}
	c.propose(leader, &fsm.Put{Key: "k"}, "put")
	c.pass(100)
	for name, text := range c.asks {
		if text != fsm.ErrDiverged.Error() {
			t.Errorf("%s: %s", name, text)
		}
	}
}
