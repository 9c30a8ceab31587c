package replica

import (
	"cmp"
	"io"
	"log"
	"testing"
	"testing/cryptotest"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// member runs one replica in virtual time, with its log in memory. Appends become durable only in
// persist, so a test controls how long a sync takes.
type member struct {
	t       testing.TB
	r       *Replica
	log     *raft.MemoryStorage
	m       *fsm.Machine
	now     lease.Instant
	appends []*raftpb.Message

	proposals     []*Proposal
	reads         []*Read
	renewals      map[lease.ID][]Renewal
	together      []*Renewals
	groups        []*Renewals
	invalidations []Invalidation
	entries       int // entries with data
	failed        error
}

const self = 1

// start returns a sole voter before its election.
func start(t testing.TB, voters ...uint64) *member {
	t.Helper()
	return startWith(t, fsm.Config{}, voters...)
}

func startWith(t testing.TB, c fsm.Config, voters ...uint64) *member {
	t.Helper()
	log := raft.NewMemoryStorage()
	m := &member{t: t, log: log, m: fsm.New(c)}
	snap := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(uint64(1)), Term: new(uint64(1)),
		ConfState: &raftpb.ConfState{Voters: append([]uint64{self}, voters...)},
	}}
	if err := log.ApplySnapshot(snap); err != nil {
		t.Fatal(err)
	}
	if err := log.SetHardState(&raftpb.HardState{
		Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1)),
	}); err != nil {
		t.Fatal(err)
	}
	m.begin()
	return m
}

// restart returns the member after a crash. Only its log survives.
func (m *member) restart() *member {
	m.t.Helper()
	again := &member{t: m.t, log: m.log, m: fsm.New(fsm.Config{})}
	again.begin()
	return again
}

// begin creates a replica with the member's log and an empty state machine.
func (m *member) begin() {
	m.t.Helper()
	m.renewals = make(map[lease.ID][]Renewal)
	m.m.Begin(1, 1)
	var err error
	m.r, err = New(Config{
		ID: self, Log: m.log, Machine: m.m, ElectionTicks: 10, HeartbeatTicks: 1,
		MaxBatch: 1 << 20, MaxExpire: 4, Logger: discard,
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// lead returns a sole voter that leads and has applied its first entry.
func lead(t testing.TB) *member {
	t.Helper()
	m := start(t)
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	m.settle()
	if s := m.r.Status(); !s.Primary || s.Leader != self {
		t.Fatalf("status after campaigning: %+v", s)
	}
	return m
}

// take collects the outputs of a step without syncing the log.
func (m *member) take() {
	m.t.Helper()
	out := m.r.Take()
	m.appends = append(m.appends, out.Append...)
	m.proposals = append(m.proposals, out.Proposals...)
	m.reads = append(m.reads, out.Reads...)
	m.invalidations = append(m.invalidations, out.Invalidations...)
	for _, n := range out.Renewals {
		m.renewals[n.ID] = append(m.renewals[n.ID], n)
	}
	m.together = append(m.together, out.Together...)
	m.groups = append(m.groups, out.Groups...)
	m.failed = cmp.Or(m.failed, out.Failed)
}

// persist syncs pending writes.
func (m *member) persist() {
	m.t.Helper()
	batch := m.appends
	m.appends = nil
	for _, a := range batch {
		for _, e := range a.GetEntries() {
			if len(e.GetData()) > 0 {
				m.entries++
			}
		}
		if err := m.log.Append(a.GetEntries()); err != nil {
			m.t.Fatal(err)
		}
		m.r.Persisted(a)
	}
}

// settle runs steps and syncs until the member is idle at the current instant.
func (m *member) settle() {
	m.t.Helper()
	for range 1000 {
		m.take()
		if len(m.appends) == 0 {
			return
		}
		m.persist()
	}
	m.t.Fatal("the member does not become idle")
}

// pass advances time by d and wakes the replica at each instant that it asks for.
func (m *member) pass(d lease.Instant) {
	m.t.Helper()
	end := m.now + d
	for m.now < end {
		next := end
		if at, ok := m.r.Next(); ok {
			next = min(max(at, m.now+1), end)
		}
		m.now = next
		m.r.Advance(m.now)
		m.settle()
	}
}

func (m *member) do(c fsm.Command) fsm.Result {
	m.t.Helper()
	p := &Proposal{Command: c}
	m.r.Propose(p)
	m.settle()
	if p.Err != nil {
		m.t.Fatalf("%T: %v", c, p.Err)
	}
	return p.Result
}

func (m *member) grant(id lease.ID, ttl lease.TTL) {
	m.t.Helper()
	if r := m.do(&fsm.Grant{Terms: lease.Terms{ID: id, TTL: ttl}}); r.Err != nil {
		m.t.Fatal(r.Err)
	}
}

// renew renews a lease and returns the outcome. It fails the test if there is no immediate answer.
func (m *member) renew(id lease.ID) Renewal {
	m.t.Helper()
	n := len(m.renewals[id])
	m.r.Renew(Renewal{ID: id})
	m.settle()
	if len(m.renewals[id]) != n+1 {
		m.t.Fatalf("renewal of %d: %d outcomes", id, len(m.renewals[id])-n)
	}
	return m.renewals[id][n]
}

func (m *member) alive(id lease.ID) bool {
	_, ok := m.m.Lessor().Lookup(id)
	return ok
}

func raftMessage(m *raftpb.Message) *Message {
	return &Message{Version: 1, From: m.GetFrom(), To: m.GetTo(), Raft: m}
}

// discard drops log output but still panics.
var discard = &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)}

// repeatElections makes Raft's election timeouts reproducible. Otherwise a vote is sometimes split,
// the election takes twice as long, and requests waiting for a leader are rejected.
func repeatElections(t testing.TB) {
	if test, ok := t.(*testing.T); ok {
		cryptotest.SetGlobalRandom(test, 1)
	}
}
