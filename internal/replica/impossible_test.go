package replica

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// TestCommitBeyondTheLog checks that a commit index beyond the end of the log causes an error, not
// a panic.
func TestCommitBeyondTheLog(t *testing.T) {
	m := start(t, 2)
	err := m.r.Step(raftMessage(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(self)),
		Term: new(uint64(9)), Commit: new(uint64(1 << 40)),
	}))
	if !errors.Is(err, ErrImpossible) {
		t.Errorf("error %v", err)
	}
}

// TestBugPanics checks that a panic not caused by a message is not recovered, because it is a bug.
// Here the library's logger, which every step needs, is missing.
func TestBugPanics(t *testing.T) {
	m := start(t, 2)
	defer func() {
		if said := recover(); said == nil {
			t.Error("the bug was reported as an impossible message")
		}
	}()
	m.r.raft.node.raw = nil
	err := m.r.Step(raftMessage(&raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(self)),
		Term: new(uint64(9)),
	}))
	t.Errorf("error %v", err)
}

// TestImpossibleMessages checks that an impossible message is rejected with an error naming the
// sender, and that the replica continues.
func TestImpossibleMessages(t *testing.T) {
	app := func(change func(*raftpb.Message)) *raftpb.Message {
		m := &raftpb.Message{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(self)),
			Term: new(uint64(5)), Index: new(uint64(1)), LogTerm: new(uint64(1)),
			Entries: []*raftpb.Entry{
				{Term: new(uint64(5)), Index: new(uint64(2))},
				{Term: new(uint64(5)), Index: new(uint64(3))},
			},
		}
		change(m)
		return m
	}
	snap := func(change func(*raftpb.SnapshotMetadata)) *raftpb.Message {
		meta := &raftpb.SnapshotMetadata{
			Index: new(uint64(7)), Term: new(uint64(3)),
			ConfState: &raftpb.ConfState{Voters: []uint64{self, 2}},
		}
		change(meta)
		return app(func(m *raftpb.Message) {
			m.Type, m.Entries = raftpb.MsgSnap.Enum(), nil
			m.Snapshot = &raftpb.Snapshot{Metadata: meta}
		})
	}
	for _, c := range []struct {
		words string
		m     *raftpb.Message
	}{
		{"no term", app(func(m *raftpb.Message) { m.Term = nil })},
		{"too far above", app(func(m *raftpb.Message) { m.Term = new(uint64(math.MaxUint64)) })},
		{"its log term 6 is higher", app(func(m *raftpb.Message) { m.LogTerm = new(uint64(6)) })},
		{"has term 0", app(func(m *raftpb.Message) { m.LogTerm = nil })},
		{"its context is too long", app(func(m *raftpb.Message) { m.Context = make([]byte, 1<<20) })},
		{"never send", app(func(m *raftpb.Message) { m.Responses = []*raftpb.Message{{}} })},
		{"where entry 2 was expected", app(func(m *raftpb.Message) { m.Entries[0].Index = new(uint64(4)) })},
		{"where entry 3 was expected", app(func(m *raftpb.Message) { m.Entries[1].Index = nil })},
		{
			"has term 4, but the preceding entry has term 5",
			app(func(m *raftpb.Message) { m.Entries[1].Term = new(uint64(4)) }),
		},
		{
			"has term 6, but the message has term 5",
			app(func(m *raftpb.Message) { m.Entries[1].Term = new(uint64(6)) }),
		},
		{"unknown type", app(func(m *raftpb.Message) { m.Entries[0].Type = raftpb.EntryType(9).Enum() })},
		{"must not have entries", app(func(m *raftpb.Message) { m.Type = raftpb.MsgVote.Enum() })},
		{"must not have a snapshot", app(func(m *raftpb.Message) {
			m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1))}}
		})},
		{"never send", app(func(m *raftpb.Message) { m.Type = raftpb.MsgProp.Enum() })},
		{"never send", app(func(m *raftpb.Message) { m.Type = raftpb.MsgStorageAppendResp.Enum() })},
		{"never send", app(func(m *raftpb.Message) { m.Type = raftpb.MsgForgetLeader.Enum() })},
		{"its snapshot has term 6", snap(func(s *raftpb.SnapshotMetadata) { s.Term = new(uint64(6)) })},
		{
			"its snapshot has index 7 and term 0",
			snap(func(s *raftpb.SnapshotMetadata) { s.Term = nil }),
		},
		{"has no voters", snap(func(s *raftpb.SnapshotMetadata) { s.ConfState = nil })},
		{"invalid members", snap(func(s *raftpb.SnapshotMetadata) {
			s.ConfState.Learners = []uint64{self}
		})},
	} {
		m := start(t, 2)
		var err error
		if c.m.GetType() == raftpb.MsgSnap {
			m.m.Begin(c.m.GetSnapshot().GetMetadata().GetIndex(), 3)
			var taken bool
			taken, err = m.r.Restore(c.m, m.m)
			if taken || m.r.incoming != nil || m.r.raft.offered != 0 {
				t.Errorf("%s: taken %v, and the next snapshot is pending", c.words, taken)
			}
		} else {
			err = m.r.Step(raftMessage(c.m))
		}
		switch {
		case !errors.Is(err, ErrMessage):
			t.Errorf("%s: error %v", c.words, err)
		case !strings.Contains(err.Error(), "member 2 ") || !strings.Contains(err.Error(), c.words):
			t.Errorf("%q is not in %q", c.words, err)
		}
		m.settle()
		if s := m.r.Status(); s.Term != 1 {
			t.Errorf("%s: term %d", c.words, s.Term)
		}
	}
}

// TestAcknowledgedBeyondTheLog checks that a leader rejects acknowledgments of entries that its log
// does not have.
func TestAcknowledgedBeyondTheLog(t *testing.T) {
	m := lead(t)
	err := m.r.Step(raftMessage(&raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: new(uint64(2)), To: new(uint64(self)),
		Term: new(m.r.Status().Term), Index: new(m.r.Status().Index + 1),
	}))
	if !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), "this member's log ends at") {
		t.Errorf("error %v", err)
	}
}

// TestEntryThatCannotBeApplied checks that a committed entry that cannot be applied stops the
// member, and that no part of the entry is applied. An entry of a newer release causes a different
// error. The leader sends and commits the entry in the same message.
func TestEntryThatCannotBeApplied(t *testing.T) {
	change, old := raftpb.EntryConfChangeV2.Enum(), raftpb.EntryConfChange.Enum()
	put := fsm.AppendCommand(fsm.AppendEntry(nil, 1), &fsm.Put{Key: "k"})
	next := bytes.Clone(put)
	next[0] = version.Newest + 1
	for name, c := range map[string]struct {
		e    *raftpb.Entry
		want error
	}{
		"no entry":      {&raftpb.Entry{Data: append(bytes.Clone(put), 0)}, ErrImpossible},
		"cut off":       {&raftpb.Entry{Data: put[:len(put)-1]}, ErrImpossible},
		"no change":     {&raftpb.Entry{Data: []byte("no"), Type: change}, ErrImpossible},
		"half a change": {&raftpb.Entry{Data: append(newChange(t), 7), Type: change}, ErrImpossible},
		"no old change": {&raftpb.Entry{Data: []byte("no"), Type: old}, ErrImpossible},
		"an old change": {&raftpb.Entry{Data: oldChange(t, 0), Type: old}, ErrImpossible},
		// Decoded as a new change, this one has an invalid transition.
		"an old change with an ID": {&raftpb.Entry{Data: oldChange(t, 9), Type: old}, ErrImpossible},
		// This change leaves a joint configuration.
		"a change of nothing": {&raftpb.Entry{Type: change}, ErrImpossible},
		"another version":     {&raftpb.Entry{Data: next}, encoding.ErrNewer},
		"another command":     {&raftpb.Entry{Data: append(bytes.Clone(put), 0x7f)}, encoding.ErrNewer},
		"another group":       {&raftpb.Entry{Data: append(bytes.Clone(put), 0xff)}, encoding.ErrNewer},
	} {
		m := start(t, 2)
		c.e.Term, c.e.Index = new(uint64(5)), new(uint64(2))
		if err := m.r.Step(raftMessage(&raftpb.Message{
			Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(self)),
			Term: new(uint64(5)), Index: new(uint64(1)), LogTerm: new(uint64(1)),
			Commit: new(uint64(2)), Entries: []*raftpb.Entry{c.e},
		})); err != nil {
			t.Fatal(err)
		}
		revision := m.m.View().KV.Revision()
		m.settle()
		if !errors.Is(m.failed, ErrImpossible) == (c.want == ErrImpossible) ||
			!errors.Is(m.failed, c.want) {
			t.Errorf("%s: %v", name, m.failed)
		}
		if v := m.m.View().KV; v.Revision() != revision {
			t.Errorf("%s: part of it was applied", name)
		}
	}
}

// newChange is a membership change as members encode it.
func newChange(t *testing.T) []byte {
	add := &fsm.AddMember{Member: fsm.Member{ID: 9, PeerURLs: []string{"nine"}, Learner: true}}
	data, err := proto.Marshal(confChange(&Proposal{Command: add}, 1))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// oldChange is a membership change in the old encoding, which members do not use.
func oldChange(t *testing.T, id uint64) []byte {
	data, err := proto.Marshal(&raftpb.ConfChange{Id: &id, NodeId: new(uint64(9))})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestUnreadableIsNotProposed checks that a command that no member could decode from the log is
// rejected, regardless of the member that received it. Otherwise every member would have to stop at
// its entry.
func TestUnreadableIsNotProposed(t *testing.T) {
	deep := &fsm.Txn{}
	for range 40 {
		deep = &fsm.Txn{Else: []fsm.Op{{Txn: deep}}}
	}
	for name, c := range map[string]fsm.Command{
		"alarm": &fsm.SetAlarm{Alarm: fsm.Alarm{Member: 1, Kind: 3}}, "deep": deep,
		"once":     &fsm.Once{Number: 1, Command: &fsm.Compact{}},
		"target":   &fsm.Txn{Compare: []fsm.Compare{{Target: 99}}},
		"relation": &fsm.Txn{Compare: []fsm.Compare{{Relation: 4}}},
		"order": &fsm.Once{Number: 1, Command: &fsm.Txn{Then: []fsm.Op{{
			Range: &fsm.Range{Options: mvcc.RangeOptions{SortBy: 6}},
		}}}},
		"nothing": &fsm.Txn{Then: []fsm.Op{{Txn: &fsm.Txn{Else: []fsm.Op{{}}}}}},
	} {
		for _, m := range []*member{lead(t), start(t, 2)} {
			before := m.entries
			p := &Proposal{Command: c}
			m.r.Propose(p)
			m.settle()
			if !errors.Is(p.Err, fsm.ErrUnreadable) || m.entries != before || m.failed != nil {
				t.Errorf("%s: %v, %d entries, %v", name, p.Err, m.entries-before, m.failed)
			}
		}
	}
}

// FuzzStep checks that no message from another member causes a panic. It sends followers and
// leaders messages of all types with random fields, encoded and decoded.
func FuzzStep(f *testing.F) {
	for i := range uint64(200) {
		f.Add(i, []byte{})
	}
	f.Add(uint64(1), []byte{messageFormat.Version, wireForward, 0, 9, 1, 1, 1})
	f.Fuzz(func(t *testing.T, seed uint64, raw []byte) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := start(t)
		if rng.IntN(2) == 0 {
			m = start(t, 2)
		} else if err := m.r.Campaign(); err != nil {
			t.Fatal(err)
		}
		m.settle()
		for i := range 20 {
			var msg *Message
			switch {
			case i == 10 && len(raw) > 0:
				msg = &Message{Version: 1, From: 2, To: self}
			case rng.IntN(4) == 0:
				msg = anyForward(rng)
			default:
				msg = raftMessage(anyMessage(rng, m.r.raft.last))
			}
			if msg.Raft != nil || msg.Forward != nil || msg.Reply != nil {
				raw = msg.AppendTo(nil)
			}
			got, err := DecodeMessage(msg.From, msg.To, raw)
			if err != nil {
				continue
			}
			if err := m.r.Step(got); errors.Is(err, ErrImpossible) {
				return
			}
			if m.take(); m.failed != nil {
				return
			}
			if rng.IntN(3) == 0 {
				m.persist()
				m.now++
				m.r.Advance(m.now)
				m.r.Tick()
			}
		}
	})
}

// anyMessage returns a random Raft message for a log that ends at last.
func anyMessage(rng *rand.Rand, last uint64) *raftpb.Message {
	number := func() *uint64 {
		switch rng.IntN(12) {
		case 0:
			return new(rng.Uint64())
		case 1:
			return nil
		case 2:
			return new(last)
		}
		return new(rng.Uint64N(6))
	}
	m := &raftpb.Message{
		Type: raftpb.MessageType(rng.IntN(len(raftpb.MessageType_name) + 1)).Enum(),
		From: new(1 + rng.Uint64N(3)), To: new(uint64(self)), Term: number(),
		LogTerm: number(), Index: number(), Commit: number(), Vote: number(),
		RejectHint: number(), Reject: new(rng.IntN(2) == 0), Context: []byte("c"),
	}
	if rng.IntN(2) == 0 {
		m.Type = raftpb.MsgApp.Enum()
	}
	plausible := rng.IntN(2) == 0
	for i := range rng.IntN(4) {
		e := &raftpb.Entry{Term: number(), Index: number()}
		if plausible { // otherwise no message would reach the log
			e.Term, e.Index = m.Term, new(m.GetIndex()+uint64(i)+1)
		}
		if rng.IntN(3) == 0 {
			e.Type, e.Data = raftpb.EntryType(rng.IntN(4)).Enum(), bytes.Repeat([]byte{1}, rng.IntN(9))
		}
		m.Entries = append(m.Entries, e)
	}
	if rng.IntN(10) == 0 {
		m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			Index: number(), Term: number(), ConfState: &raftpb.ConfState{Voters: []uint64{3, 3}},
		}}
	}
	return m
}

// anyForward returns a random request to a leader, or an answer.
func anyForward(rng *rand.Rand) *Message {
	m := &Message{Version: 1, From: 2 + rng.Uint64N(2), To: self}
	small := func() uint64 { return rng.Uint64() >> rng.Uint64N(64) }
	if rng.IntN(2) == 0 {
		code := Code(rng.IntN(len(codes) + 1)) // sometimes unknown
		m.Reply = &Reply{
			Term: 1 + rng.Uint64N(4), Next: small(), Round: small(), Index: small(),
			Refused:    []Refusal{{Seq: small(), Code: code}},
			Left:       []Left{{TTL: lease.TTL(small()), Found: true}},
			Renewed:    []Renewed{{Seq: small(), TTL: lease.TTL(small()), Code: code, Group: 7}},
			GroupRound: 1 + small(), Groups: []holder.RenewedGroup{{ID: 7, TTL: 9}},
			Filled: []bool{true},
		}
		return m
	}
	m.Forward = &Forward{
		Term: 1 + rng.Uint64N(4), First: small(), Base: small(), Round: small(),
		Renewals:  []Ask{{Seq: small(), ID: lease.ID(small()), Token: lease.Token(small())}},
		Groups:    holder.Round{Number: 1 + small(), Renew: []lease.GroupID{0, 7}},
		Queries:   []lease.ID{lease.ID(small())},
		Abandoned: []lease.ID{lease.ID(small())},
	}
	return m
}
