package replica

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// TestVetBounds checks that values at their limits are accepted and larger ones are rejected.
func TestVetBounds(t *testing.T) {
	m := lead(t)
	d := m.r.raft
	term := m.r.term
	for name, c := range map[string]struct {
		change func(*raftpb.Message)
		wrong  bool
	}{
		"a heartbeat":       {func(*raftpb.Message) {}, false},
		"of an early term":  {func(m *raftpb.Message) { m.Term = new(term - 1) }, false},
		"the highest term":  {func(m *raftpb.Message) { m.Term = new(term + maxTermJump) }, false},
		"above it":          {func(m *raftpb.Message) { m.Term = new(term + maxTermJump + 1) }, true},
		"the longest":       {func(m *raftpb.Message) { m.Context = make([]byte, maxContext) }, false},
		"above that":        {func(m *raftpb.Message) { m.Context = make([]byte, maxContext+1) }, true},
		"of nobody":         {func(m *raftpb.Message) { m.From = nil }, true},
		"an empty snapshot": {func(m *raftpb.Message) { m.Snapshot = &raftpb.Snapshot{} }, false},
		"an index": {func(m *raftpb.Message) {
			m.Type, m.Index = raftpb.MsgHeartbeatResp.Enum(), new(d.last+1)
		}, false},
		"the last entry": {func(m *raftpb.Message) {
			m.Type, m.Index = raftpb.MsgAppResp.Enum(), new(d.last)
		}, false},
		"the next": {func(m *raftpb.Message) {
			m.Type, m.Index = raftpb.MsgAppResp.Enum(), new(d.last+1)
		}, true},
		"the next, in an early term": {func(m *raftpb.Message) {
			m.Type, m.Index, m.Term = raftpb.MsgAppResp.Enum(), new(d.last+1), new(term-1)
		}, false},
		"the next, refused": {func(m *raftpb.Message) {
			m.Type, m.Index, m.Reject = raftpb.MsgAppResp.Enum(), new(d.last+1), new(true)
		}, false},
		"after the last number": {func(m *raftpb.Message) {
			m.Type, m.Index, m.LogTerm = raftpb.MsgApp.Enum(), new(uint64(math.MaxUint64)), &term
			m.Entries = []*raftpb.Entry{{Term: &term}}
		}, true},
		"the first entry": {func(m *raftpb.Message) {
			m.Type, m.Entries = raftpb.MsgApp.Enum(), []*raftpb.Entry{{Term: &term, Index: new(uint64(1))}}
		}, false},
		"the first entry, of no term": {func(m *raftpb.Message) {
			m.Type, m.Entries = raftpb.MsgApp.Enum(), []*raftpb.Entry{{Index: new(uint64(1))}}
		}, true},
		"a snapshot of nothing": {func(m *raftpb.Message) {
			m.Type = raftpb.MsgSnap.Enum()
			m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
				Term: &term, ConfState: &raftpb.ConfState{Voters: []uint64{self}},
			}}
		}, true},
	} {
		msg := &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(self)),
			Term: new(term),
		}
		c.change(msg)
		if err := d.vet(msg, m.r.role); errors.Is(err, ErrMessage) != c.wrong || err == nil == c.wrong {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPossibleChanges checks that a membership change is rejected if it would leave no voter, if it
// requires a joint configuration, or if the current configuration is invalid.
func TestPossibleChanges(t *testing.T) {
	voters := &raftpb.ConfState{Voters: []uint64{1, 2}}
	twice := &raftpb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{1}}
	remove := func(id uint64) *raftpb.ConfChangeV2 {
		return &raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
			{NodeId: &id, Type: raftpb.ConfChangeRemoveNode.Enum()},
		}}
	}
	joint := remove(2)
	joint.Transition = raftpb.ConfChangeTransitionJointExplicit.Enum()
	for name, c := range map[string]struct {
		of     *raftpb.ConfState
		change *raftpb.ConfChangeV2
		can    bool
	}{
		"of two":            {voters, remove(2), true},
		"of two, in steps":  {voters, joint, false},
		"of one":            {&raftpb.ConfState{Voters: []uint64{1}}, remove(1), false},
		"a learner as well": {twice, remove(2), false},
	} {
		d := &driver{conf: c.of}
		if err := d.checkChange(c.change); (err == nil) != c.can {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// spoken is a logger that records its panic message.
type spoken struct {
	contradictionLogger
	said string
}

func (s *spoken) Panicf(format string, v ...any) { s.said = fmt.Sprintf(format, v...) }

// TestOtherPanics checks that a panic not caused by a message goes through the member's own logger.
func TestOtherPanics(t *testing.T) {
	log := &spoken{}
	contradictionLogger{log}.Panicf("index %d", 7)
	if log.said != "index 7" {
		t.Errorf("panic: %q", log.said)
	}
}
