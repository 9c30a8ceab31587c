package replica

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestGroupCommit checks that commands proposed during a sync share the next entry.
func TestGroupCommit(t *testing.T) {
	m := lead(t)
	before := m.entries
	put := func(i int) *Proposal {
		p := &Proposal{Command: &fsm.Put{Key: fmt.Sprint(i)}}
		m.r.Propose(p)
		m.take()
		return p
	}
	put(0) // being synced
	for i := 1; i < 100; i++ {
		put(i)
	}
	m.settle()
	if got := m.entries - before; got != 2 {
		t.Errorf("%d entries for 100 puts, 99 of them during the first sync", got)
	}
	if len(m.proposals) != 100 {
		t.Errorf("%d answers", len(m.proposals))
	}
	if n := m.m.View().KV.Len(); n != 100 {
		t.Errorf("%d keys", n)
	}
}

// TestAnswerWaitsForSync checks that no command is answered before its entry is durable (S2).
func TestAnswerWaitsForSync(t *testing.T) {
	m := lead(t)
	p := &Proposal{Command: &fsm.Put{Key: "k"}}
	m.r.Propose(p)
	m.take()
	m.take()
	if len(m.proposals) > 0 || m.m.View().KV.Get("k") != nil {
		t.Fatal("answered or applied before the sync")
	}
	m.settle()
	if len(m.proposals) != 1 || m.proposals[0] != p || p.Err != nil {
		t.Errorf("answers %v", m.proposals)
	}
}

// TestAdmission checks that internal commands from clients are rejected (T1). A member that does
// not lead proposes nothing.
func TestAdmission(t *testing.T) {
	m := lead(t)
	for _, c := range []fsm.Command{&fsm.Expire{Term: 2}, &fsm.Checkpoint{Term: 2}} {
		p := &Proposal{Command: c}
		m.r.Propose(p)
		m.settle()
		if !errors.Is(p.Err, ErrInternal) {
			t.Errorf("%T from a client: %v", c, p.Err)
		}
	}
	idle := start(t, 2)
	p, q := &Proposal{Command: &fsm.Put{Key: "k"}}, &Read{}
	idle.r.Propose(p)
	idle.r.Read(q)
	idle.r.Renew(Renewal{ID: 1})
	idle.settle()
	if len(idle.proposals)+len(idle.reads)+len(idle.renewals) > 0 {
		t.Error("answered before a leader could be found")
	}
	for range 10 * patience {
		idle.r.Tick()
		idle.settle()
	}
	if !errors.Is(p.Err, ErrNoLeader) || !errors.Is(q.Err, ErrNoLeader) ||
		!errors.Is(idle.renewals[1][0].Err, ErrNoLeader) {
		t.Errorf("without a leader: %v, %v, %v", p.Err, q.Err, idle.renewals[1])
	}
}

// TestReadConfirms checks that a read sees everything acknowledged before it. Inspect runs when the
// read is answered.
func TestReadConfirms(t *testing.T) {
	m := lead(t)
	m.grant(1, 5000)
	seen := false
	q := &Read{Inspect: func(l *lease.Lessor) { _, seen = l.Lookup(1) }}
	m.r.Read(q)
	m.settle()
	if len(m.reads) != 1 || q.Err != nil || !seen {
		t.Errorf("%d reads, error %v, saw the lease: %v", len(m.reads), q.Err, seen)
	}
}

// TestExpiry checks that a renewed lease survives, and that an unrenewed lease ends with its keys,
// no earlier than one TTL after its last renewal was received (L1, L2).
func TestExpiry(t *testing.T) {
	m := lead(t)
	m.grant(1, 5000)
	m.grant(2, 5000)
	m.do(&fsm.Put{Key: "foo", Lease: 1})
	for range 4 {
		m.pass(2000)
		if n := m.renew(2); n.Err != nil || n.TTL != 5000 {
			t.Fatalf("renewal: %+v", n)
		}
		if m.now < 5000 && !m.alive(1) {
			t.Fatalf("lease 1 is gone at %d", m.now)
		}
	}
	if m.alive(1) || m.m.View().KV.Get("foo") != nil {
		t.Error("an unrenewed lease still exists")
	}
	last := m.now
	m.pass(5000)
	if !m.alive(2) {
		t.Errorf("lease 2 is gone at %d, renewed at %d", m.now, last)
	}
	m.pass(50)
	if m.alive(2) {
		t.Errorf("lease 2 still exists at %d, renewed at %d", m.now, last)
	}
	if n := m.renew(2); !errors.Is(n.Err, lease.ErrNotFound) {
		t.Errorf("renewal of an expired lease: %+v", n)
	}
}

// TestExpiryInterleavesCommands checks that many leases ending together expire a few per entry,
// with client commands in between (T13).
func TestExpiryInterleavesCommands(t *testing.T) {
	m := lead(t)
	for id := lease.ID(1); id <= 100; id++ {
		m.grant(id, 1000)
	}
	m.now += 2000
	m.r.Advance(m.now)
	for i := range 3 {
		p := &Proposal{Command: &fsm.Put{Key: fmt.Sprint(i)}}
		m.r.Propose(p)
		for range 2 { // the entry in flight, and then the put's own entry
			m.take()
			m.persist()
		}
		m.take()
		if len(m.proposals) == 0 || m.proposals[len(m.proposals)-1] != p {
			t.Fatalf("put %d waited for expiries", i)
		}
	}
	if n := m.m.Lessor().Len(); n < 60 {
		t.Errorf("%d leases left after a few entries of four", n)
	}
	m.pass(1000)
	if n := m.m.Lessor().Len(); n != 0 {
		t.Errorf("%d leases left", n)
	}
}

// TestExpiryIsBoundedByKeys checks that an entry expires fewer leases if they have many keys (T14).
// A lease with more keys than fit gets its own entry.
func TestExpiryIsBoundedByKeys(t *testing.T) {
	m := lead(t) // MaxExpire is 4, which allows 8 keys per entry
	for id := lease.ID(1); id <= 4; id++ {
		m.grant(id, 1000)
		for k := range 5 {
			m.do(&fsm.Put{Key: fmt.Sprint(id, "/", k), Lease: id})
		}
	}
	m.grant(5, 1000)
	for k := range 20 {
		m.do(&fsm.Put{Key: fmt.Sprint("5/", k), Lease: 5})
	}
	before := m.entries
	m.pass(3000)
	if n := m.m.Lessor().Len(); n != 0 || m.m.View().KV.Len() != 0 {
		t.Errorf("%d leases and %d keys left", n, m.m.View().KV.Len())
	}
	if got := m.entries - before; got < 5 {
		t.Errorf("%d entries for 40 keys, 8 per entry", got)
	}
}

// TestRenewWhileExpiring checks that once the leader has decided to expire a lease, a renewal waits
// for the outcome and cannot succeed while the keys are being deleted (T5). Other renewals do not
// wait (T15).
func TestRenewWhileExpiring(t *testing.T) {
	m := lead(t)
	m.grant(1, 1000)
	m.grant(2, 9000)
	m.do(&fsm.Put{Key: "k", Lease: 1})
	m.now += 1500
	m.r.Advance(m.now)
	m.take() // the expiry has been proposed and is being synced
	m.r.Renew(Renewal{ID: 1})
	m.r.Renew(Renewal{ID: 2})
	m.take()
	if len(m.renewals[1]) != 0 {
		t.Fatalf("a renewal of an expiring lease was answered: %+v", m.renewals[1])
	}
	if len(m.renewals[2]) != 1 || m.renewals[2][0].Err != nil {
		t.Fatalf("another lease waits for it: %+v", m.renewals[2])
	}
	m.settle()
	if n := m.renewals[1]; len(n) != 1 || !errors.Is(n[0].Err, lease.ErrNotFound) {
		t.Errorf("outcome %+v, want not found", n)
	}
}

// TestRenewDuringRevoke checks that a renewal that arrives while a revocation is in the log looks
// up the lease again after its confirm round. It cannot succeed after the revocation was
// acknowledged (T6, L3).
func TestRenewDuringRevoke(t *testing.T) {
	m := lead(t)
	m.grant(1, 5000)
	p := &Proposal{Command: &fsm.Revoke{ID: 1}}
	m.r.Propose(p)
	m.take()
	batch := m.appends
	m.appends = nil
	for _, a := range batch {
		if err := m.log.Append(a.GetEntries()); err != nil {
			t.Fatal(err)
		}
		m.r.Persisted(a) // committed; applied in the next step, together with the renewal
	}
	m.r.Renew(Renewal{ID: 1})
	m.settle()
	if p.Err != nil || p.Result.Err != nil {
		t.Fatal(p.Err, p.Result.Err)
	}
	if n := m.renewals[1]; len(n) != 1 || !errors.Is(n[0].Err, lease.ErrNotFound) {
		t.Errorf("renewal %+v after the revoke was acknowledged", n)
	}
}

// TestSilenceIsCheckpointed checks that a silent lease is checkpointed once, and that its renewal
// is answered after an entry clears the checkpoint (rule 6). Healthy leases do not need any
// entries.
func TestSilenceIsCheckpointed(t *testing.T) {
	m := lead(t)
	m.grant(1, 9000)
	m.grant(2, 9000)
	before := m.entries
	m.pass(3000)
	m.renew(2)
	m.pass(2000)
	m.renew(2)
	if info, _ := m.m.Lessor().Lookup(1); info.Remaining <= 0 || info.Remaining > 5450 {
		t.Fatalf("silent for 5 s of 9: remaining %d", info.Remaining)
	}
	if info, _ := m.m.Lessor().Lookup(2); info.Remaining != 0 {
		t.Errorf("a renewed lease was checkpointed: %+v", info)
	}
	if got := m.entries - before; got != 1 {
		t.Errorf("%d entries, want the one checkpoint", got)
	}
	m.r.Renew(Renewal{ID: 1})
	m.take()
	if len(m.renewals[1]) != 0 {
		t.Fatal("acknowledged before the clearing entry was durable")
	}
	m.settle()
	if n := m.renewals[1]; len(n) != 1 || n[0].Err != nil || n[0].TTL != 9000 {
		t.Fatalf("renewal %+v", n)
	}
	if info, _ := m.m.Lessor().Lookup(1); info.Remaining != 0 {
		t.Errorf("still checkpointed: %+v", info)
	}
	m.pass(8900)
	if !m.alive(1) {
		t.Error("expired by the old countdown")
	}
}

// TestRestart checks that a restart replays the log to the same state. Leases without a checkpoint
// get their full TTL from promotion (rule 5).
func TestRestart(t *testing.T) {
	m := lead(t)
	m.grant(1, 4000)
	m.do(&fsm.Put{Key: "k", Value: []byte("v"), Lease: 1})
	m.pass(1000)
	old, err := m.m.Image().Hash()
	if err != nil {
		t.Fatal(err)
	}
	again := m.restart()
	if err := again.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	again.settle()
	if h, err := again.m.Image().Hash(); err != nil || h != old {
		t.Errorf("hash %x, %v; want %x", h, err, old)
	}
	again.pass(3900)
	if !again.alive(1) {
		t.Error("the lease did not get its full TTL after the restart")
	}
	again.pass(200)
	if again.alive(1) {
		t.Error("the lease still exists")
	}
}

// TestPrimaryAfterOwnEntry checks that a leader with a large backlog starts timing leases only
// after it has applied an entry of its own term (rule 5). Each step reports what it has applied.
func TestPrimaryAfterOwnEntry(t *testing.T) {
	m := lead(t)
	m.grant(1, 4000)
	for range 3 { // each put fills a step
		m.do(&fsm.Compact{Revision: 1})
	}
	if err := m.log.SetHardState(&raftpb.HardState{
		Term: new(uint64(7)), Vote: new(uint64(0)), Commit: new(uint64(1)),
	}); err != nil {
		t.Fatal(err)
	}
	again := m.restart()
	if err := again.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	waited, index := 0, again.m.Index()
	for s := again.r.Status(); !s.Primary; s = again.r.Status() {
		if waited++; waited > 20 {
			t.Fatal("never became primary")
		}
		again.persist()
		out := again.r.Take()
		again.appends = append(again.appends, out.Append...)
		if out.Applied != (again.m.Index() > index) || out.Hash != nil {
			t.Errorf("applied %v, hash %v, after entry %d", out.Applied, out.Hash, index)
		}
		index = again.m.Index()
		if s = again.r.Status(); s.Primary != (s.Leading && again.m.Term() == s.Term) {
			t.Errorf("in term %d, primary: %v, applied term %d", s.Term, s.Primary,
				again.m.Term())
		}
	}
	if waited < 4 {
		t.Errorf("only %d steps", waited)
	}
}

// TestNoQuorumNoAnswer checks that without a quorum nothing is committed or confirmed. Reads and
// renewals are not answered, and time out without a leader (T4, T32).
func TestNoQuorumNoAnswer(t *testing.T) {
	m := start(t, 2)
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	vote := func(typ raftpb.MessageType, term uint64) {
		err := m.r.Step(raftMessage(&raftpb.Message{
			Type: typ.Enum(), From: new(uint64(2)), To: new(uint64(self)), Term: new(term),
		}))
		if err != nil {
			t.Fatal(err)
		}
		m.settle()
	}
	m.settle()
	vote(raftpb.MsgPreVoteResp, 2)
	vote(raftpb.MsgVoteResp, 2)
	last, err := m.log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	err = m.r.Step(raftMessage(&raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: new(uint64(2)), To: new(uint64(self)),
		Term: new(uint64(2)), Index: new(last),
	}))
	if err != nil {
		t.Fatal(err)
	}
	m.settle()
	if s := m.r.Status(); !s.Primary {
		t.Fatalf("not primary with both voters: %+v", s)
	}
	p, q := &Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 1000}}}, &Read{}
	m.r.Propose(p)
	m.r.Read(q)
	m.r.Renew(Renewal{ID: 7})
	m.settle()
	if len(m.proposals)+len(m.reads)+len(m.renewals) > 0 {
		t.Fatal("answered without a quorum")
	}
	for range 25 { // CheckQuorum deposes the leader
		m.r.Tick()
		m.settle()
	}
	if s := m.r.Status(); s.Leading || s.Primary {
		t.Errorf("still leads: %+v", s)
	}
	if len(m.reads)+len(m.renewals) > 0 {
		t.Error("answered before another leader could be found")
	}
	for range 25 {
		m.r.Tick()
		m.settle()
	}
	if len(m.reads) != 1 || !errors.Is(q.Err, ErrNoLeader) ||
		!errors.Is(m.renewals[7][0].Err, ErrNoLeader) {
		t.Errorf("read %v, renewal %v", q.Err, m.renewals[7])
	}
	if len(m.proposals) != 0 {
		t.Error("a command with an unknown outcome was answered")
	}
}

// TestStepRefusesLocalMessages checks that Step rejects messages that only the member itself can
// create. It also rejects Raft's proposals, which would bypass admission (T1).
func TestStepRefusesLocalMessages(t *testing.T) {
	m := lead(t)
	for _, typ := range []raftpb.MessageType{raftpb.MsgHup, raftpb.MsgProp, raftpb.MsgSnap} {
		if err := m.r.Step(raftMessage(&raftpb.Message{
			Type: typ.Enum(), From: new(uint64(self)), To: new(uint64(self)),
			Entries: []*raftpb.Entry{{Data: fsm.AppendEntry(nil, 1)}},
		})); err == nil {
			t.Errorf("a %s was taken from outside", typ)
		}
	}
	before := m.entries
	m.settle()
	if m.entries != before {
		t.Error("an entry bypassed admission")
	}
}
