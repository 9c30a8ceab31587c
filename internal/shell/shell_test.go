package shell

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"reflect"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// member drives the shell of a member whose log is in memory.
type member struct {
	t      *testing.T
	s      *Shell
	r      *replica.Replica
	log    *raft.MemoryStorage
	clocks Reading
	mail   Mail
	// unsynced contains messages that are not yet durable. If sync is set, messages become durable
	// immediately.
	unsynced []*raftpb.Message
	sync     bool
	// before is called before each action.
	before func(Do)
	around Environment
	// others contains all members of the cluster sorted by ID, or is empty for a sole voter.
	others []*member
	did    []Do // actions of the last step
	yields bool // result of the last Beat
	view   *fsm.View
	done   []*replica.Proposal
}

const (
	heartbeat = 100
	election  = 1000
)

func start(t *testing.T) *member {
	t.Helper()
	return startOf(t, replica.Config{ID: 1}, 1)
}

// startOf returns a member of a cluster with the given voters.
func startOf(t *testing.T, c replica.Config, voters ...uint64) *member {
	t.Helper()
	log := raft.NewMemoryStorage()
	if err := log.ApplySnapshot(&raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)), ConfState: &raftpb.ConfState{Voters: voters},
	}}); err != nil {
		t.Fatal(err)
	}
	if err := log.SetHardState(&raftpb.HardState{
		Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1)),
	}); err != nil {
		t.Fatal(err)
	}
	machine := cmp.Or(c.Machine, fsm.New(fsm.Config{}))
	machine.Begin(1, 1)
	for _, id := range voters {
		machine.AddMember(fsm.Member{ID: id})
	}
	c.Log, c.Machine, c.Logger = log, machine, discard
	c.ElectionTicks, c.HeartbeatTicks, c.MaxBatch, c.MaxExpire = election/heartbeat, 1, 1<<20, 4
	r, err := replica.New(c)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{
		t: t, r: r, log: log, clocks: Reading{Boot: 5000, Mono: 70}, sync: true,
		before: func(Do) {}, around: Environment{MayVote: true}, view: machine.View(),
	}
	m.s = New(Config{Replica: r, Start: m.clocks, Heartbeat: heartbeat, Election: election})
	return m
}

// lead returns a sole voter that is the primary and times leases.
func lead(t *testing.T) *member {
	t.Helper()
	m := start(t)
	m.campaign()
	return m
}

// campaign makes a member the primary.
func (m *member) campaign() {
	m.t.Helper()
	m.mail.Tasks = append(m.mail.Tasks, func() {
		if err := m.r.Campaign(); err != nil {
			m.t.Error(err)
		}
	})
	if m.settle(); !m.s.Status.Primary {
		m.t.Fatalf("a member that campaigned has status %+v", m.s.Status)
	}
}

// step performs one step.
func (m *member) step() {
	m.did = m.did[:0]
	for {
		do := m.s.Next()
		m.did = append(m.did, do)
		m.before(do)
		if do == End || do == Sleep {
			return
		}
		m.do(do)
	}
}

func (m *member) do(do Do) {
	s := m.s
	switch do {
	case TakeMail:
		s.Mail, m.mail = m.mail, s.Mail.Emptied()
	case ReadClock:
		s.Read(m.clocks)
	case HeartbeatDue:
		m.yields = s.Beat(m.around)
	case Work:
		s.Work()
	case Send:
		for _, x := range s.Out.Send {
			to := m.others[x.To-1]
			to.mail.Messages = append(to.mail.Messages, x)
		}
	case Save:
		m.unsynced = append(m.unsynced, s.Out.Append...)
		if m.sync {
			m.persist()
		}
	case Show, Shrink:
		m.view = s.View
	case Publish:
		for _, c := range s.Out.Changes {
			if shown := m.view.KV.Revision(); shown < c.Revision {
				m.t.Errorf("an event of revision %d is published, but the view shows %d", c.Revision, shown)
			}
		}
	case Answer:
		for _, p := range s.Out.Proposals {
			if shown := m.view.KV.Revision(); shown < p.Result.Revision {
				m.t.Errorf("a write of revision %d is answered, but the view shows %d", p.Result.Revision, shown)
			}
		}
		m.done = append(m.done, s.Out.Proposals...)
	case DeliverCaches:
		s.DeliverCaches()
	}
}

// persist makes all unsynced messages durable.
func (m *member) persist() {
	for _, a := range m.unsynced {
		if err := m.log.Append(a.GetEntries()); err != nil {
			m.t.Fatal(err)
		}
	}
	m.mail.Persisted = append(m.mail.Persisted, m.unsynced...)
	m.unsynced = nil
}

// settle performs steps until no member has mail.
func (m *member) settle() {
	m.t.Helper()
	for range 100 {
		m.step()
		rests := m.rests()
		for _, o := range m.others {
			if o != m && !o.rests() {
				o.step()
				rests = false
			}
		}
		if rests {
			return
		}
	}
	m.t.Fatal("still busy")
}

func (m *member) rests() bool { return len(m.mail.Persisted)+len(m.mail.Messages) == 0 }

// pass advances both clocks, as if the machine were awake.
func (m *member) pass(d lease.Instant) {
	m.clocks.Boot, m.clocks.Mono = m.clocks.Boot+d, m.clocks.Mono+d
}

// propose proposes a command and waits until it has succeeded.
func (m *member) propose(c fsm.Command) {
	m.t.Helper()
	m.mail.Proposals = append(m.mail.Proposals, &replica.Proposal{Command: c})
	before := len(m.done)
	m.settle()
	if len(m.done) != before+1 {
		m.t.Fatalf("%T: %d answers", c, len(m.done)-before)
	}
	if p := m.done[before]; p.Err != nil || p.Result.Err != nil {
		m.t.Fatalf("%T: %v, %v", c, p.Err, p.Result.Err)
	}
}

func (m *member) grant(ttl lease.TTL) {
	m.t.Helper()
	m.propose(&fsm.Grant{Terms: lease.Terms{ID: 7, TTL: ttl}})
}

// lives finishes all work and reports whether lease 7 exists.
func (m *member) lives() bool {
	m.settle()
	_, ok := m.r.Machine().Lessor().Lookup(7)
	return ok
}

// TestRenewalCountsFromReceipt checks that a renewal counts from its arrival or later, even if the
// actions of the step that processes it are delayed. The test inserts a renewal before one action
// and lets time pass before each action.
func TestRenewalCountsFromReceipt(t *testing.T) {
	for at := TakeMail; at <= Sleep; at++ {
		m := lead(t)
		m.grant(2000)
		m.pass(1000)
		var arrived lease.Instant
		m.before = func(do Do) {
			m.pass(55)
			if do == at && arrived == 0 {
				m.mail.Renewals = append(m.mail.Renewals, replica.Renewal{ID: 7})
				arrived = m.clocks.Boot
			}
		}
		m.step()
		if arrived == 0 {
			continue // this action had no work
		}
		m.step()
		m.before = func(Do) {}
		for m.clocks.Boot < arrived+1999 { // in short steps, so that no stall is detected
			m.pass(min(heartbeat, arrived+1999-m.clocks.Boot))
			m.step()
		}
		if !m.lives() {
			t.Errorf("a renewal before action %d: the lease ended too early", at)
		}
		for range 10 {
			m.pass(heartbeat)
			m.step()
		}
		if m.lives() {
			t.Errorf("a renewal before action %d: the lease has not ended", at)
		}
	}
}

// TestAnswerShows checks that every write is visible in the current view before it is answered or
// published. The driver in this file checks each response and event.
func TestAnswerShows(t *testing.T) {
	m := lead(t)
	seen := make(map[Do]int)
	m.before = func(do Do) { seen[do]++ }
	for i := range 3 {
		m.propose(&fsm.Put{Key: "k", Value: fmt.Append(nil, i)})
	}
	if seen[Show] < 3 || seen[Publish] < 3 {
		t.Errorf("%d of three writes were shown, and %d published", seen[Show], seen[Publish])
	}
}

// TestAnswerDurable checks that no command is answered before it is durable.
func TestAnswerDurable(t *testing.T) {
	m := lead(t)
	m.sync = false
	m.mail.Proposals = append(m.mail.Proposals, &replica.Proposal{Command: &fsm.Put{Key: "k"}})
	for range 5 {
		m.pass(heartbeat)
		m.step()
	}
	if len(m.done) > 0 {
		t.Error("a write is answered before it is durable")
	}
	m.persist()
	m.step()
	if len(m.done) != 1 {
		t.Errorf("a durable write has %d answers", len(m.done))
	}
}

// TestLongStall checks that after a member was suspended, or stalled for longer than an election
// timeout, it restarts every lease with its full TTL before it ends any.
func TestLongStall(t *testing.T) {
	for _, c := range []struct {
		name          string
		awake, asleep lease.Instant
		refreshes     bool
	}{
		{name: "a step that is as late as an election", awake: election},
		{name: "a stall", awake: election + 1, refreshes: true},
		{name: "a nap", asleep: jumpLimit},
		{name: "a sleep", asleep: jumpLimit + 1, refreshes: true},
	} {
		m := lead(t)
		m.grant(lease.TTL(c.awake+c.asleep) - 10) // due at the next step
		m.pass(c.awake)
		m.clocks.Boot += c.asleep
		m.step()
		if advanced := slices.Contains(m.did, Advance); advanced != c.refreshes {
			t.Errorf("%s: reported %v", c.name, advanced)
		}
		if got := m.lives(); got != c.refreshes {
			t.Errorf("%s: the lease exists: %v", c.name, got)
		}
	}
}

// TestJumpOfSilent checks that a jump in boot time does not end a silent lease early. Because it is
// unknown how much time has passed, the lease restarts with its remaining time as last replicated.
func TestJumpOfSilent(t *testing.T) {
	const ttl = 5000
	m := lead(t)
	m.grant(ttl)
	pass := func(d lease.Instant) {
		for range d / heartbeat {
			m.pass(heartbeat)
			m.settle()
		}
	}
	pass(ttl / 2)
	if _, silent := m.r.Machine().Lessor().SilentUntil(7); !silent {
		t.Fatal("the lease is not renewed, but not silent")
	}
	m.clocks.Boot += 3600_000
	pass(ttl/2 - heartbeat)
	if !m.lives() {
		t.Fatal("a jump of the clock ended the lease early")
	}
	pass(1000)
	if m.lives() {
		t.Error("the lease has not ended")
	}
}

// TestSecondArrival checks that if two snapshots arrive together, one is accepted and the other is
// declined. The accepted snapshot is returned along with the message that installs it.
func TestSecondArrival(t *testing.T) {
	m := start(t)
	for owner := range 2 {
		foreign := fsm.New(fsm.Config{})
		foreign.Begin(1000, 2)
		m.mail.Arrivals = append(m.mail.Arrivals, Arrival{
			Owner: owner, Machine: foreign, Message: &raftpb.Message{
				Type: raftpb.MsgSnap.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(2)),
				Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
					Index: new(uint64(1000)), Term: new(uint64(2)),
					ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}},
				}},
			},
		})
	}
	var arrived any
	m.sync = false
	m.before = func(do Do) {
		if do == Save {
			arrived = m.s.Arrived
		}
	}
	m.step()
	if arrived != 0 || len(m.s.Declined) != 1 || m.s.Declined[0].Owner != 1 {
		t.Errorf("arrival %v is saved, declined %+v", arrived, m.s.Declined)
	}
	if m.step(); len(m.s.Declined) > 0 || m.s.Arrived != nil {
		t.Errorf("declined again: %+v, arrived again: %v", m.s.Declined, m.s.Arrived)
	}
}

// TestImpossible checks that after the replica has failed, the driver receives only the action End.
func TestImpossible(t *testing.T) {
	m := lead(t)
	m.mail.Proposals = append(m.mail.Proposals, &replica.Proposal{Command: &fsm.Put{Key: "k"}})
	m.s.Err = replica.ErrImpossible
	for range 3 {
		m.step()
		if !slices.Equal(m.did, []Do{End}) || !errors.Is(m.s.Err, replica.ErrImpossible) {
			t.Fatalf("the driver's actions are %v, because of %v", m.did, m.s.Err)
		}
	}
}

// TestMailReuse checks that the memory of processed mail is reused and keeps no objects alive. Each
// list contains one item whose pointers are set.
func TestMailReuse(t *testing.T) {
	m := Mail{
		Messages: []*replica.Message{{}}, Proposals: []*replica.Proposal{{}}, Reads: []*replica.Read{{}},
		Renewals: []replica.Renewal{{Owner: t}}, Together: []*replica.Renewals{{}},
		Abandoned: []lease.ID{7},
		Caches:    []CacheMail{{Ack: &replica.AckCache{}}},
		Persisted: []*raftpb.Message{{}}, Tasks: []func(){func() {}}, Arrivals: []Arrival{{Owner: t}},
		DelayOver: true,
	}
	again := m.Emptied()
	if again.DelayOver {
		t.Error("DelayOver is still set")
	}
	was, is := reflect.ValueOf(m), reflect.ValueOf(again)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		if was.Field(i).Kind() != reflect.Slice {
			continue
		}
		if is.Field(i).Len() != 0 || is.Field(i).Cap() != 1 {
			t.Errorf("%s: %d items, capacity %d", name, is.Field(i).Len(), is.Field(i).Cap())
		}
		if was.Field(i).Len() != 1 {
			t.Errorf("%s is not covered", name)
			// lease IDs contain no pointers
		} else if name != "Abandoned" && !was.Field(i).Index(0).IsZero() {
			t.Errorf("%s keeps its items alive", name)
		}
	}
}

// discard drops all log messages. Its panic functions still panic.
var discard = &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}
