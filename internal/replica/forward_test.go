package replica

import (
	"errors"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// newForwarder returns the forwarder of a member that follows member 1 in term 3.
func newForwarder() *forwarder {
	m := &local{
		cfg:     Config{ID: 2, MaxBatch: 1 << 20, ElectionTicks: 10, HeartbeatTicks: 1},
		machine: fsm.New(fsm.Config{}), role: role{term: 3, leader: 1},
	}
	f := &forwarder{m: m, next: 100}
	f.begin(3)
	return f
}

func (f *forwarder) proposeKeys(keys ...string) (all []*Proposal) {
	for _, key := range keys {
		all = append(all, &Proposal{Command: &fsm.Put{Key: key}})
		f.propose(all[len(all)-1])
	}
	return all
}

// TestForwarderPatience checks what happens when a command times out. An unsent command is
// rejected. A sent command has an unknown outcome, but it can wait longer if caches could delay it
// at the leader.
func TestForwarderPatience(t *testing.T) {
	const limit = patience * 10
	for name, c := range map[string]struct {
		now  role
		sent bool
		ttl  lease.TTL // of the leases with caches
		at   lease.Instant
		born uint64 // when it times out; 0 for not yet
	}{
		"not sent":              {role{term: 3}, false, 0, 0, limit},
		"without a leader":      {role{term: 3}, true, 60_000, 0, limit},
		"of an earlier term":    {role{term: 4, leader: 1}, true, 60_000, 0, limit},
		"without caches":        {role{term: 3, leader: 1}, true, 0, 0, limit},
		"waits for caches":      {role{term: 3, leader: 1}, true, 60_000, 59_999, 0},
		"waited for the caches": {role{term: 3, leader: 1}, true, 60_000, 60_000, limit},
	} {
		f := newForwarder()
		if c.ttl != 0 {
			f.m.machine.Begin(1, 1)
			f.m.machine.Apply(&fsm.Grant{
				Terms: lease.Terms{ID: 1, TTL: c.ttl}, Holds: []keyrange.Range{keyrange.All},
			})
		}
		p := f.proposeKeys("a")[0]
		if c.sent {
			msg := f.message()
			f.fill(&msg)
		}
		f.m.role = c.now
		f.m.now = c.at
		for f.m.ticks = 1; f.m.ticks < 3*limit && p.Err == nil; f.m.ticks++ {
			f.tick()
		}
		want := ErrLeaderChanged
		if !c.sent {
			want = ErrNoLeader
		}
		if given := f.m.ticks - 1; c.born == 0 && p.Err != nil || c.born != 0 &&
			(given != c.born || !errors.Is(p.Err, want)) {
			t.Errorf("%s: %v after %d ticks", name, p.Err, given)
		}
	}
}

// TestForwarderRefusals checks that a refusal completes one command, once. Refused commands are
// removed from the list once they make up half of it. The rest remain pending.
func TestForwarderRefusals(t *testing.T) {
	f := newForwarder()
	all := f.proposeKeys("a", "b", "c", "d")
	msg := f.message()
	f.fill(&msg)
	f.reached(3, 104)
	no := codeOf(ErrOverloaded)
	f.refused([]Refusal{{100, no}, {100, no}})
	if len(f.m.out.Proposals) != 1 || len(f.sent) != 4 {
		t.Errorf("%d answers, %d kept", len(f.m.out.Proposals), len(f.sent))
	}
	f.refused([]Refusal{{102, no}})
	if len(f.m.out.Proposals) != 2 || len(f.sent) != 2 || all[1].Err != nil || all[3].Err != nil {
		t.Errorf("%d answers, %d kept", len(f.m.out.Proposals), len(f.sent))
	}
}

// TestRefuseForwarded checks that with Config.RefuseForwarded a leader rejects commands from other
// members but accepts commands from its own clients.
func TestRefuseForwarded(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	refuse := true
	c.members[1].r.lead.m.cfg.RefuseForwarded = func() bool { return refuse }
	put := func(id uint64) func() string {
		outcome := c.command(c.members[id], &fsm.Put{Key: "k"})
		c.run()
		return outcome
	}
	if got := put(2)(); !strings.Contains(got, ErrOverloaded.Error()) {
		t.Errorf("forwarded: %q", got)
	}
	if got := put(1)(); strings.Contains(got, "replica:") || got == "" {
		t.Errorf("from a client of the leader: %q", got)
	}
	refuse = false
	if got := put(2)(); strings.Contains(got, "replica:") || got == "" {
		t.Errorf("forwarded later: %q", got)
	}
}

// TestForwarderBounds checks that a message has at most groupMax commands, each of which begins
// within the first MaxBatch bytes. A full message is sent without waiting for earlier answers.
func TestForwarderBounds(t *testing.T) {
	f := newForwarder()
	f.proposeKeys(make([]string, groupMax+1)...)
	first, held := f.message(), f.message()
	if f.fill(&first); len(first.Commands) != groupMax || len(f.queue) != 1 {
		t.Errorf("%d commands, %d left", len(first.Commands), len(f.queue))
	}
	f.proposeKeys(make([]string, groupMax-2)...)
	if f.fill(&held); len(held.Commands) != 0 {
		t.Errorf("%d commands do not wait", len(held.Commands))
	}
	f.proposeKeys("k")
	if f.fill(&held); len(held.Commands) != groupMax {
		t.Errorf("of %d commands %d do not wait", groupMax, len(held.Commands))
	}
	f = newForwarder()
	f.proposeKeys("a", "b", "c")
	var one Forward
	one.add(f.queue[0].Command)
	f.m.cfg.MaxBatch = 2 * len(one.body)
	msg := f.message()
	if f.fill(&msg); len(msg.Commands) != 2 {
		t.Errorf("%d commands of two sizes", len(msg.Commands))
	}
	f.m.cfg.MaxBatch = len(one.body)
	if f.resend(); len(f.m.out.Send[0].Forward.Commands) != 1 {
		t.Errorf("%d commands of one size resent", len(f.m.out.Send[0].Forward.Commands))
	}
}
