package replica

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
)

// comparing returns a cluster with a leader that compares the states once a second, after it has
// done so.
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
		t.Fatal("nobody has compared anything, or members differ")
	}
	return c, leader
}

// damage changes the state of a member behind the log's back.
func damage(p *peer) { p.r.machine.Apply(&fsm.Put{Key: "damaged"}) }

// Goal: a member whose state differs stops and the others go on, whichever it is, also the leader.
// It does not run again on what it has. Method: a key that only it has.
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
					t.Errorf("leads %v: ended with %v", leads, p.failed)
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
			t.Errorf("leads %v: goes on after a restart: %v", leads, bad.failed)
		}
	}
}

// No member tells the hash of another one, nor asks for hashes before it is time; but each tells
// its own.
func TestNobodyTellsAnothersHash(t *testing.T) {
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

// Goal: a member that gets the state as a snapshot, in which it is damaged, does not go on with it.
// Method: it hears nothing any more after it has told its hash, and the log before is gone then.
func TestSnapshotSaysDamaged(t *testing.T) {
	c, leader := comparing(t, 1, 2, 3)
	bad, before := c.members[leader.id%3+1], leader.r.machine.HashedAt()
	damage(bad)
	c.lose = func(m *Message) bool { return m.To == bad.id && bad.r.machine.HashedAt() > before }
	if c.pass(2000); !leader.r.machine.IsDamaged(bad.id) || bad.failed != nil {
		t.Fatalf("alarms %v, and it has ended with %v", leader.r.machine.View().Alarms, bad.failed)
	}
	for _, p := range c.members {
		if p != bad {
			c.check(p.log.Compact(p.r.machine.Index()))
		}
	}
	for _, p := range c.members {
		p.r.cfg.CompareTicks = 0 // no entry after the snapshot
	}
	c.lose = nil
	if c.pass(2000); !errors.Is(bad.failed, ErrDamaged) {
		t.Errorf("ended with %v", bad.failed)
	}
	bad.failed = nil
	c.start(bad)
	if c.step(bad); !errors.Is(bad.failed, ErrDamaged) {
		t.Errorf("started anew it ended with %v", bad.failed)
	}
}

// A hash of a state that is not the one which was asked for last is told to nobody.
func TestHashOfAnotherStateIsNotTold(t *testing.T) {
	_, leader := comparing(t, 1, 2)
	of, before := leader.r.machine.Image(), leader.r.Status().Pending
	if of.View.Index <= leader.r.machine.HashedAt() {
		t.Fatal("the state is the one that was asked for")
	}
	leader.r.TellHash(of, 1, nil)
	if n := leader.r.Status().Pending; n != before {
		t.Errorf("%d commands are under way, and %d were before", n, before)
	}
}

// TestCompareTicks: a leader asks for the hashes a tenth of Config.CompareTicks after it has begun,
// and then after each of them; not before it is primary, and not without another member.
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
		for range 3 { // the leader begins then
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
			t.Errorf("%s: asked at the ticks %v, want %v", x.name, asked, x.want)
		}
	}
}

// Two members that differ do not know which is right: nobody stops, and writes are refused.
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
