package replica

import (
	"errors"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
)

// leadWith returns a sole voter that leads. Its release supports the versions in speaks, and the
// cluster's record of it lists those in known.
func leadWith(t *testing.T, speaks, known version.Range) *member {
	t.Helper()
	m := startWith(t, fsm.Config{Versions: speaks})
	m.m.AddMember(fsm.Member{ID: self, Versions: known})
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	m.settle()
	return m
}

// written returns the versions of all entries with commands, in log order.
func (m *member) written() (out []byte) {
	m.t.Helper()
	last, err := m.log.LastIndex()
	if err != nil {
		m.t.Fatal(err)
	}
	entries, err := m.log.Entries(2, last+1, 1<<30)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range entries {
		if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
			out = append(out, e.GetData()[0])
		}
	}
	return out
}

// TestLeaderRaisesVersion checks that the leader raises the cluster version once, as soon as all
// members support the next version. The entry that raises it has the old version, and later entries
// have the new one.
func TestLeaderRaisesVersion(t *testing.T) {
	two := version.Range{Oldest: 1, Newest: 2}
	m := leadWith(t, two, version.Range{Oldest: 1, Newest: 1})
	for range 5 {
		m.r.Tick()
		m.settle()
	}
	if v := m.m.Version(); v.Number != 1 || len(m.written()) != 0 {
		t.Fatalf("version %+v, although not all members speak it", v)
	}
	m.r.Propose(&Proposal{Command: &fsm.SetMember{Member: fsm.Member{ID: self, Versions: two}}})
	m.settle()
	m.r.Tick()
	m.take()
	m.r.Tick() // while the change is in flight
	m.settle()
	if v := m.m.Version(); v.Number != 2 || m.failed != nil {
		t.Fatalf("version %+v, %v", v, m.failed)
	}
	if got := string(m.written()); got != "\x01\x01" {
		t.Errorf("entries of versions %x", got)
	}
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
	m.settle()
	if got := string(m.written()); got != "\x01\x01\x02" {
		t.Errorf("entries of versions %x", got)
	}
}

// TestVersionChangeIsExclusive checks that no entry in the old version follows a version change in
// the log. A put waits until the change is applied, whether the change was requested by a client of
// this member or of another.
func TestVersionChangeIsExclusive(t *testing.T) {
	for _, origin := range []fsm.Origin{{}, {Member: 9, Seq: 1}} {
		changeAlone(t, origin)
	}
}

func changeAlone(t *testing.T, origin fsm.Origin) {
	t.Helper()
	m := leadWith(t, version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 2})
	hold := &Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}, origin: origin}
	m.r.Propose(hold)
	put := &Proposal{Command: &fsm.Put{Key: "k"}}
	m.r.Propose(put)
	m.take()
	q, log := &m.r.lead.queue, m.r.inflight
	if len(q.waiting) != 1 || len(log) != 1 || len(log[0].proposals) != 1 {
		t.Fatalf("%d commands wait, %d entries in the log", len(q.waiting), len(log))
	}
	m.settle()
	if hold.Result.Err != nil || put.Result.Err != nil || !m.m.Version().Held ||
		put.Result.Revision != 2 {
		t.Errorf("%+v, %+v, version %+v", hold.Result, put.Result, m.m.Version())
	}
	again := &Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}}
	m.r.Propose(again) // rejected, so it delays nothing
	m.settle()
	m.r.Propose(put)
	m.settle()
	if !errors.Is(again.Result.Err, fsm.ErrDowngrade) || m.r.lead.queue.versioning {
		t.Errorf("%+v", again.Result)
	}
}

// TestMemberWaitsForVersion checks that a membership change, like a command, waits while a change
// of the cluster version is in the log. Until then, the version of its entry is not known.
func TestMemberWaitsForVersion(t *testing.T) {
	m := leadWith(t, version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 2})
	hold := &Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}}
	m.r.Propose(hold)
	m.take()
	add := &Proposal{Command: &fsm.AddMember{
		Member: fsm.Member{ID: 9, PeerURLs: []string{"nine"}, Learner: true},
	}}
	m.r.Propose(add)
	m.take()
	if n := len(m.r.lead.changes.waiting); n != 1 {
		t.Fatalf("%d changes of the membership wait", n)
	}
	m.settle()
	if hold.Result.Err != nil || add.Result.Err != nil || add.Err != nil || add.Index == 0 {
		t.Errorf("%+v, %+v, %v", hold.Result, add.Result, add.Err)
	}
}

// TestVersionBeyondMember checks that a member that no longer supports the cluster version returns
// an error and stops. Here the cluster's record of the member wrongly lists the next version.
func TestVersionBeyondMember(t *testing.T) {
	m := leadWith(t, version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 2})
	m.r.Propose(&Proposal{Command: &fsm.SetVersion{Version: 2}})
	m.settle()
	if !errors.Is(m.failed, encoding.ErrNewer) {
		t.Errorf("error %v", m.failed)
	}
}

// TestRaftSpeaksFirstVersion checks that Raft messages use the first version. A member that missed
// a downgrade of the cluster version can therefore catch up and vote among members of an older
// release.
func TestRaftSpeaksFirstVersion(t *testing.T) {
	two := version.Range{Oldest: 1, Newest: 2}
	m := leadWith(t, two, two)
	m.r.Tick()
	m.settle()
	raftMessage := &raftpb.Message{To: new(uint64(2)), Type: raftpb.MsgAppResp.Enum()}
	m.r.raft.route(raftMessage, &m.r.out)
	m.r.send(&Message{To: 2, Reply: &Reply{}})
	m.r.send(&Message{To: 2, Version: 1, Forward: &Forward{}})
	var got []byte
	for _, sent := range m.r.Take().Send {
		got = append(got, sent.AppendTo(nil)[0])
	}
	if string(got) != "\x01\x02\x01" {
		t.Errorf("messages of versions %x in a cluster of version %d", got, m.m.Version().Number)
	}
}

// TestRefusedVersionChange checks that if a change of the cluster version is rejected at the gate,
// nothing is appended after an earlier change that is already in the log.
func TestRefusedVersionChange(t *testing.T) {
	m := leadWith(t, version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 2})
	m.r.Propose(&Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}})
	m.take()
	m.r.lead.gate.early = make([]*Proposal, maxEarly)
	m.r.Propose(&Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}})
	m.r.lead.gate.early = nil
	if !m.r.lead.queue.versioning || m.r.lead.queue.ceiling != 1 {
		t.Errorf("deciding %v, ceiling %d", m.r.lead.queue.versioning, m.r.lead.queue.ceiling)
	}
	m.settle()
	if m.r.lead.queue.versioning || m.r.lead.queue.ceiling != 0 || !m.m.Version().Held {
		t.Errorf("%+v, %+v", m.r.lead.queue, m.m.Version())
	}
}

// late returns a follower with cluster version 2, set in term 5. Member 2 leads in term 6, and the
// follower has not applied any entry of that term.
func late(t *testing.T) *member {
	t.Helper()
	two := version.Range{Oldest: 1, Newest: 2}
	m := startWith(t, fsm.Config{Versions: two}, 2)
	for id := uint64(self); id <= 2; id++ {
		m.m.AddMember(fsm.Member{ID: id, Versions: two})
	}
	m.hear(5, 1, 1, fsm.AppendCommand(fsm.AppendEntry(nil, 1), &fsm.SetVersion{Version: 2}))
	m.hear(6, 2, 5)
	if v := m.m.Version(); v.Number != 2 || m.failed != nil {
		t.Fatalf("version %+v, %v", v, m.failed)
	}
	return m
}

// hear delivers member 2's first message of a term: committed entries that follow an entry of
// another term.
func (m *member) hear(term, index, before uint64, entries ...[]byte) {
	m.t.Helper()
	app := &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(self)), Term: &term,
		Index: new(index), LogTerm: &before, Commit: new(index + uint64(len(entries))),
	}
	for _, data := range entries {
		index++
		app.Entries = append(app.Entries, &raftpb.Entry{Term: &term, Index: new(index), Data: data})
	}
	if err := m.r.Step(raftMessage(app)); err != nil {
		m.t.Fatal(err)
	}
	m.settle()
}

// forwarded returns the distinct versions of the messages sent to the leader, and the last command
// in them.
func (m *member) forwarded() (versions string, last fsm.Command) {
	m.t.Helper()
	var list []byte
	for _, sent := range m.r.Take().Send {
		if f := sent.Forward; f != nil {
			list = append(list, sent.AppendTo(nil)[0])
			if n := len(f.Commands); n > 0 {
				last = f.Commands[n-1]
			}
		}
	}
	return string(slices.Compact(list)), last
}

// TestForwardAfterMissedLowering checks that requests from a member that missed a downgrade of the
// cluster version reach a leader of an older release. They use the old version until the member has
// an entry of the leader's term.
func TestForwardAfterMissedLowering(t *testing.T) {
	m := late(t)
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
	m.r.Read(&Read{})
	if v, put := m.forwarded(); v != "\x01" || put == nil {
		t.Errorf("%v in versions %x", put, v)
	}
	m.hear(6, 2, 5, nil)
	m.r.Renew(Renewal{ID: 1})
	for range 10 { // then it sends the request again
		m.r.Tick()
	}
	if v, put := m.forwarded(); v != "\x02" || put == nil {
		t.Errorf("then %v in versions %x", put, v)
	}
}

// later returns a command that needs cluster version 2, like a command added in a later release.
func later(t *testing.T) *Proposal {
	t.Helper()
	p := &Proposal{Command: &fsm.Put{Key: "later"}}
	has = func(v byte, c fsm.Command) bool { return v >= 2 || c != p.Command }
	t.Cleanup(func() { has = fsm.Has })
	return p
}

// TestLeaderRefusesCommandOfLaterVersion checks that a leader accepts commands that need the
// current cluster version. Once a change to a lower version is queued, it rejects them, even before
// the change is applied.
func TestLeaderRefusesCommandOfLaterVersion(t *testing.T) {
	two := version.Range{Oldest: 1, Newest: 2}
	m := leadWith(t, two, two)
	m.r.Tick()
	m.settle()
	p := later(t)
	m.r.Propose(p)
	if p.Err != nil || len(m.r.lead.queue.waiting) != 1 {
		t.Errorf("in version %+v: %v", m.m.Version(), p.Err)
	}
	m.r.Propose(&Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}})
	m.r.Propose(p)
	if !errors.Is(p.Err, ErrVersion) || len(m.r.lead.queue.waiting) != 2 {
		t.Errorf("after a change to version 1: %v", p.Err)
	}
}

// TestForwardOfLaterVersion checks that a member that missed a downgrade of the cluster version
// holds back commands of the higher version until it has applied an entry of the leader's term.
// Then it forwards or rejects the command. Without such an entry the command times out. Other
// commands are forwarded immediately.
func TestForwardOfLaterVersion(t *testing.T) {
	fell := fsm.AppendCommand(fsm.AppendEntry(nil, 1), &fsm.SetVersion{Version: 1, Hold: true})
	for name, c := range map[string]struct {
		then [][]byte // the leader's entries
		want error
	}{
		"the version is unchanged": {[][]byte{nil}, nil},
		"the version was lowered":  {[][]byte{fell, nil}, ErrVersion},
		"no entry comes":           {nil, ErrNoLeader},
	} {
		t.Run(name, func(t *testing.T) {
			m := late(t)
			put, p := &Proposal{Command: &fsm.Put{Key: "k"}}, later(t)
			m.r.Propose(put)
			m.r.Propose(p)
			if v, last := m.forwarded(); v != "\x01" || last != put.Command {
				t.Errorf("first %T in versions %x", last, v)
			}
			// the leader has received the put
			m.r.relay.commands.reached(6, m.r.relay.commands.next)
			m.hear(6, 2, 5, c.then...)
			if c.then == nil {
				for range 10 * patience {
					m.r.Tick()
				}
				m.settle()
			}
			sent := len(m.r.relay.commands.sent) > 1
			if !errors.Is(p.Err, c.want) || sent != (c.want == nil) || m.failed != nil {
				t.Errorf("%v, sent %v, %v", p.Err, sent, m.failed)
			}
		})
	}
}
