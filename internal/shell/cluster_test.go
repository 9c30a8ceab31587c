package shell

import (
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// names lists the actions that a step leaves out when there is no work for them.
var names = map[Do]string{
	Advance: "advance", HeartbeatDue: "look", Feed: "feed", Send: "send", Save: "save", Show: "show",
	Follow: "follow", Publish: "publish", DeliverCaches: "tell", End: "end", Shrink: "shrink",
}

// cluster returns three members. The first member is the leader, and the others have received its
// messages.
func cluster(t *testing.T) []*member {
	t.Helper()
	var all []*member
	for id := uint64(1); id <= 3; id++ {
		all = append(all, startOf(t, replica.Config{ID: id}, 1, 2, 3))
	}
	for _, m := range all {
		m.others = all
	}
	all[0].campaign()
	for range 3 {
		all[0].beat()
	}
	return all
}

// beat advances all clocks by one heartbeat interval and lets all members finish their work.
func (m *member) beat() {
	m.t.Helper()
	for _, o := range m.others {
		o.pass(heartbeat)
	}
	for _, o := range m.others {
		o.settle()
	}
}

// hears performs one step with mail and compares the driver's actions with want.
func (m *member) hears(what, want string, mail Mail) {
	m.t.Helper()
	mail.Persisted, mail.Messages = append(m.mail.Persisted, mail.Persisted...),
		append(m.mail.Messages, mail.Messages...)
	m.mail = mail
	m.step()
	var did []string
	for _, do := range m.did {
		if name := names[do]; name != "" {
			did = append(did, name)
		}
	}
	if got := strings.Join(did, " "); got != want {
		m.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestNothingToDo checks that a driver receives exactly the actions for which there is work, in the
// order required for durability and visibility.
func TestNothingToDo(t *testing.T) {
	all := cluster(t)
	m := all[0]
	command := func(c fsm.Command) Mail {
		return Mail{Proposals: []*replica.Proposal{{Command: c}}}
	}
	others := func() {
		for _, o := range all[1:] {
			for !o.rests() {
				o.step()
			}
		}
	}
	m.hears("nothing", "", Mail{})
	m.pass(heartbeat - 1)
	m.hears("less than a heartbeat", "", Mail{})
	m.pass(1)
	m.hears("a heartbeat", "look send shrink", Mail{})
	others()
	m.hears("its answers", "", Mail{})
	m.sync = false
	m.hears("a write", "send save follow", command(&fsm.Put{Key: "k"}))
	others()
	m.hears("a write that the others have", "send save follow", Mail{})
	others()
	m.persist()
	m.hears("a write that the leader's own disk has, too", "show follow publish", Mail{})
	m.sync = true
	m.hears("a command that changes no key", "send save follow", command(&fsm.Revoke{ID: 99}))
	others()
	m.hears("its end", "send save show follow", Mail{})
	m.settle()
	m.hears("a message that makes no sense", "feed", Mail{Messages: []*replica.Message{
		{From: 2, To: 1, Raft: &raftpb.Message{Type: raftpb.MsgHup.Enum(), From: new(uint64(2))}},
	}})
	if len(m.s.Refused) != 1 || m.s.Refused[0].From != 2 || m.s.Refused[0].Err == nil {
		t.Errorf("refused: %v", m.s.Refused)
	}
	m.hears("what cannot be", "end", Mail{Messages: []*replica.Message{{
		From: 2, To: 1,
		Raft: &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)),
			Term: new(uint64(9)), Commit: new(uint64(1 << 40)),
		},
	}}})
}

// TestActions checks that the driver receives an action if and only if there is work for it, in
// cases that are hard to provoke otherwise.
func TestActions(t *testing.T) {
	opened := replica.Output{Opened: []replica.OpenCache{{}}}
	for _, c := range []struct {
		name   string
		do     Do
		out    replica.Output
		before replica.Status
		want   bool
	}{
		{name: "nothing", do: DeliverCaches},
		{name: "a cache is open", do: DeliverCaches, out: opened, want: true},
		{
			name: "a cache is to drop keys", do: DeliverCaches, want: true,
			out: replica.Output{Invalidations: []replica.Invalidation{{}}},
		},
		{name: "another leads", do: DeliverCaches, before: replica.Status{Leader: 2}, want: true},
		{name: "another term", do: DeliverCaches, before: replica.Status{Term: 2}, want: true},
		{name: "it is behind", do: DeliverCaches, before: replica.Status{Applied: 2}},
		{
			name: "what came after a snapshot, which was told", do: Publish,
			out: replica.Output{Restored: true, Changes: []fsm.Change{{}}},
		},
		{name: "a removed member", do: End, out: replica.Output{Removed: true}, want: true},
		{name: "a member", do: End},
	} {
		if s := (&Shell{Out: c.out, Before: c.before}); s.begin(c.do) != c.want {
			t.Errorf("%s: has work: %v", c.name, !c.want)
		}
	}
}

// TestAlone checks that a member does not campaign while it is waiting for others to start.
func TestAlone(t *testing.T) {
	for _, assembled := range []bool{false, true} {
		m := startOf(t, replica.Config{ID: 1}, 1, 2, 3)
		m.others = []*member{m, start(t), start(t)}
		m.around.MayVote = assembled
		for range 2*election/heartbeat + 1 {
			m.pass(heartbeat)
			m.step()
		}
		if asked := len(m.others[1].mail.Messages) > 0; asked != assembled {
			t.Errorf("assembled %v, campaigned %v", assembled, asked)
		}
	}
}

// TestDiskStuckEverywhere checks that members do not pass leadership around when all their disks
// are stuck. The leader offers leadership to each member in turn, with ten election timeouts
// between offers.
func TestDiskStuckEverywhere(t *testing.T) {
	all := cluster(t)
	first := all[0]
	for _, m := range all {
		m.around.DiskStuck = true
	}
	var offers []lease.Instant
	began := first.s.Now + heartbeat
	for range 3 * yieldEvery * election / heartbeat {
		for _, m := range all {
			m.yields = false
			m.pass(heartbeat)
			m.step()
		}
		if first.yields {
			offers = append(offers, first.s.Now-began)
		}
		first.settle()
		if !first.s.Status.Leading {
			t.Fatalf("no longer the leader after offers at %v", offers)
		}
	}
	if !slices.Equal(offers, []lease.Instant{0, yieldEvery * election, 2 * yieldEvery * election}) {
		t.Errorf("offers at %v", offers)
	}
}

// TestDiskStuck checks that if two of three members have stuck disks, the third becomes the leader.
// The other member with a stuck disk must not become the leader in the meantime.
func TestDiskStuck(t *testing.T) {
	for stuck := 1; stuck < 3; stuck++ {
		all := cluster(t)
		first, second := all[0], all[stuck]
		first.around.DiskStuck, second.around.DiskStuck = true, true
		for range 2 * yieldEvery * election / heartbeat {
			for _, m := range all {
				m.pass(heartbeat)
				m.step()
			}
			first.settle()
			if second.s.Status.Leading {
				t.Fatal("the lead goes to a member with a stuck disk")
			}
		}
		if !all[3-stuck].s.Status.Leading {
			t.Error("the member with a good disk is not the leader")
		}
	}
}

// TestDiskStuckAlone checks that a leader with a stuck disk remains the leader if no other member
// can lead. A leader with a healthy disk does not offer leadership.
func TestDiskStuckAlone(t *testing.T) {
	m := lead(t)
	m.around.DiskStuck = true
	m.pass(heartbeat)
	if m.step(); m.yields || !m.s.Status.Leading {
		t.Error("a sole voter hands the lead over")
	}
	all := cluster(t)
	all[0].pass(heartbeat)
	if all[0].step(); all[0].yields {
		t.Error("a leader with a good disk hands the lead over")
	}
}

// TestUnknownCommand checks that a member stops with an error at an entry that it cannot apply.
func TestUnknownCommand(t *testing.T) {
	m := startOf(t, replica.Config{ID: 1}, 1, 2)
	m.others = []*member{m, start(t)}
	m.mail.Messages = []*replica.Message{{From: 2, To: 1, Raft: &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(5)),
		Index: new(uint64(1)), LogTerm: new(uint64(1)), Commit: new(uint64(2)),
		Entries: []*raftpb.Entry{
			{Index: new(uint64(2)), Term: new(uint64(5)), Data: []byte("no command")},
		},
	}}}
	for range 5 {
		if m.step(); m.did[len(m.did)-1] == End {
			break
		}
	}
	if m.s.Err == nil {
		t.Errorf("not stopped: status %+v", m.s.Status)
	}
}

// TestWait checks that a member sleeps until the next heartbeat, or until a lease is due if that is
// earlier. It does not sleep while there is work.
func TestWait(t *testing.T) {
	m := lead(t)
	m.pass(heartbeat)
	m.settle()
	sleeps := func(name string, want lease.TTL) {
		t.Helper()
		if m.step(); m.s.Wait != want {
			t.Errorf("%s: sleeps for %d, want %d", name, m.s.Wait, want)
		}
	}
	sleeps("after a heartbeat", heartbeat)
	m.pass(30)
	sleeps("later", heartbeat-30)
	m.propose(&fsm.Grant{Terms: lease.Terms{ID: 8, TTL: 60_000}})
	sleeps("before the end of a lease is near", heartbeat-30)
	m.grant(50)
	at, ok := m.r.Next()
	if !ok || at <= m.s.Now || at >= m.s.Now+50 {
		t.Fatalf("at %d, a lease of 50 ms is due at %d", m.s.Now, at)
	}
	sleeps("until a lease has to be looked after", lease.TTL(at-m.s.Now))
	m.pass(heartbeat - 30)
	m.settle()
	sleeps("at the next heartbeat", heartbeat)
	m.s.pace.next = m.s.Now - 5
	if wait := m.s.sleep(); wait != 0 {
		t.Errorf("sleeps for %d although it is late", wait)
	}
}

// TestCleaning checks that memory freed by compaction is cleaned up in parts, without sleeping in
// between. The view published afterward no longer refers to this memory.
func TestCleaning(t *testing.T) {
	m := lead(t)
	value := make([]byte, 1000)
	for range 3 * scrubBudget {
		m.propose(&fsm.Put{Key: "k", Value: value})
	}
	m.propose(&fsm.Compact{Revision: m.r.Machine().View().KV.Revision()})
	m.pass(heartbeat)
	steps := 0
	for m.s.Wait = 0; m.s.Wait == 0 && steps < 10; steps++ {
		if m.view.KV.Scrubbed() {
			t.Error("all is clean after the first part")
		}
		m.step()
	}
	if steps < 3 || !m.view.KV.Scrubbed() {
		t.Errorf("%d steps, all clean: %v", steps, m.view.KV.Scrubbed())
	}
	if m.hears("all is clean", "", Mail{}); m.s.Wait == 0 {
		t.Error("does not sleep afterwards")
	}
}

// TestHeld checks that commands waiting to be batched are reported as delayed, and are proposed
// only when the commit delay is over.
func TestHeld(t *testing.T) {
	m := startOf(t, replica.Config{ID: 1, CommitDelay: true}, 1)
	m.campaign()
	put := func(n int) {
		for range n {
			m.mail.Proposals = append(m.mail.Proposals, &replica.Proposal{Command: &fsm.Put{Key: "k"}})
		}
	}
	put(8)
	m.settle()
	before := len(m.done)
	put(1)
	m.settle()
	if !m.s.Delayed || len(m.done) != before {
		t.Fatalf("delayed %v, %d answers", m.s.Delayed, len(m.done)-before)
	}
	m.mail.DelayOver = true
	m.settle()
	if m.s.Delayed || len(m.done) != before+1 {
		t.Errorf("after the delay: delayed %v, %d answers", m.s.Delayed, len(m.done)-before)
	}
}

// leadSoonSilent returns a leader that considers a lease silent 250 ms after its connection is
// gone.
func leadSoonSilent(t *testing.T) *member {
	t.Helper()
	m := startOf(t, replica.Config{
		ID: 1, Machine: fsm.New(fsm.Config{Lease: lease.Config{Untended: 250}}),
	}, 1)
	m.campaign()
	return m
}

// TestUntendedLease checks that a lease becomes silent soon after its holder's connection is gone.
func TestUntendedLease(t *testing.T) {
	for _, left := range []bool{false, true} {
		m := leadSoonSilent(t)
		m.grant(60_000)
		m.mail.Renewals = []replica.Renewal{{ID: 7}}
		m.settle()
		if left {
			m.mail.Abandoned = []lease.ID{7}
		}
		for range 20 {
			m.pass(heartbeat)
			m.settle()
		}
		if _, silent := m.r.Machine().Lessor().SilentUntil(7); silent != left {
			t.Errorf("left %v, silent %v", left, silent)
		}
	}
}

// TestStallOfSilent checks that a stall measured by the clock does not extend a silent lease.
func TestStallOfSilent(t *testing.T) {
	m := leadSoonSilent(t)
	m.grant(60_000)
	for range 10 {
		m.pass(heartbeat)
		m.settle()
	}
	until, silent := m.r.Machine().Lessor().SilentUntil(7)
	if !silent {
		t.Fatal("the lease is not renewed, but not silent")
	}
	for range 10 {
		m.pass(heartbeat)
		m.settle()
	}
	m.pass(election + 1)
	m.settle()
	for m.s.Now < until {
		m.pass(min(heartbeat, until-m.s.Now))
		m.settle()
	}
	if m.lives() {
		t.Error("the lease has not ended")
	}
}

// TestRenewedTogether checks that a batch of renewals renews its lease and returns the TTL.
func TestRenewedTogether(t *testing.T) {
	m := lead(t)
	m.grant(60_000)
	n := &replica.Renewals{IDs: []lease.ID{7}, TTLs: make([]lease.TTL, 1)}
	m.mail.Together = []*replica.Renewals{n}
	if m.settle(); n.Kept != 1 || n.TTLs[0] != 60_000 {
		t.Errorf("%d leases were renewed, for %v", n.Kept, n.TTLs)
	}
}
