package replica

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/confchange"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// These constants bound the contents of one message.
const (
	// maxTermJump bounds how much one message can raise the term. Each election raises the term by
	// one, so a larger jump is not genuine. After a jump close to the maximum, the term could not
	// rise any further.
	maxTermJump = 1 << 32
	// maxContext bounds the size of a context in bytes. Members send contexts of at most 16 bytes.
	maxContext = 1 << 10
)

// vet returns an error if another member's message is inconsistent, and nil otherwise. The Raft
// library trusts its input, and panics if it is inconsistent. The sender of such a message is
// faulty or not a member, so this member ignores the message.
func (d *driver) vet(m *raftpb.Message, now role) error {
	var wrong string
	switch t, term := m.GetType(), m.GetTerm(); {
	case term == 0:
		wrong = "it has no term"
	case term > now.term && term-now.term > maxTermJump:
		wrong = fmt.Sprintf("its term %d is too far above term %d", term, now.term)
	case m.GetFrom() == raft.None || m.GetFrom() == d.id:
		wrong = "it is not from another member"
	case len(m.GetContext()) > maxContext:
		wrong = fmt.Sprintf("its context is too long: %d bytes", len(m.GetContext()))
	case len(m.GetResponses()) > 0:
		wrong = "it has responses, which members never send to each other"
	case t != raftpb.MsgApp && len(m.GetEntries()) > 0:
		wrong = "it must not have entries"
	case t != raftpb.MsgSnap && !raft.IsEmptySnap(m.GetSnapshot()):
		wrong = "it must not have a snapshot"
	case m.GetLogTerm() > term:
		wrong = fmt.Sprintf("its log term %d is higher than its term %d", m.GetLogTerm(), term)
	case t == raftpb.MsgApp:
		wrong = wrongEntries(m)
	case t == raftpb.MsgAppResp && now.leading && term == now.term && !m.GetReject() &&
		// in an earlier term, the entry may have been removed in the meantime
		m.GetIndex() > d.last:
		wrong = fmt.Sprintf("it acknowledges entry %d, but this member's log ends at entry %d",
			m.GetIndex(), d.last)
	case t == raftpb.MsgSnap:
		wrong = wrongSnapshot(m)
	}
	if wrong == "" {
		return nil
	}
	return fmt.Errorf("%w: member %x sent an invalid %s: %s",
		ErrMessage, m.GetFrom(), m.GetType(), wrong)
}

// fromOutside reports whether members send each other messages of this type. Commands arrive in a
// Forward instead, and must be admitted (T1). Snapshots arrive through Restore.
func fromOutside(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp,
		raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp,
		raftpb.MsgTimeoutNow:
		return true
	}
	return false
}

// wrongEntries describes an error in the entries of a MsgApp, or returns "" if they are correct.
// The entries must continue the preceding entry without gaps, and their terms must not decrease.
func wrongEntries(m *raftpb.Message) string {
	index, term := m.GetIndex(), m.GetLogTerm()
	if (index == 0) != (term == 0) {
		return fmt.Sprintf("the preceding entry, %d, has term %d", index, term)
	}
	for _, e := range m.GetEntries() {
		index++
		switch {
		case e.GetIndex() != index || index == 0:
			return fmt.Sprintf("it has entry %d where entry %d was expected", e.GetIndex(), index)
		case e.GetTerm() < term || e.GetTerm() == 0:
			return fmt.Sprintf("entry %d has term %d, but the preceding entry has term %d",
				index, e.GetTerm(), term)
		case e.GetTerm() > m.GetTerm():
			return fmt.Sprintf("entry %d has term %d, but the message has term %d",
				index, e.GetTerm(), m.GetTerm())
		}
		term = e.GetTerm()
		if _, known := raftpb.EntryType_name[int32(e.GetType())]; !known {
			return fmt.Sprintf("entry %d is of unknown type %d", index, e.GetType())
		}
	}
	return ""
}

// wrongSnapshot describes an error in a snapshot's metadata, or returns "" if it is correct.
func wrongSnapshot(m *raftpb.Message) string {
	meta := m.GetSnapshot().GetMetadata()
	conf := meta.GetConfState()
	switch {
	case meta.GetIndex() == 0 || meta.GetTerm() == 0:
		return fmt.Sprintf("its snapshot has index %d and term %d", meta.GetIndex(), meta.GetTerm())
	case meta.GetTerm() > m.GetTerm():
		return fmt.Sprintf("its snapshot has term %d, but the message has term %d",
			meta.GetTerm(), m.GetTerm())
	case len(conf.GetVoters()) == 0:
		return "its snapshot has no voters"
	}
	if _, err := tracked(conf); err != nil {
		return fmt.Sprintf("its snapshot has invalid members: %v", err)
	}
	return ""
}

// tracked restores conf as the library does, but returns an error where the library would panic.
func tracked(conf *raftpb.ConfState) (confchange.Changer, error) {
	t := tracker.MakeProgressTracker(1, 0)
	var err error
	t.Config, t.Progress, err = confchange.Restore(confchange.Changer{Tracker: t}, conf)
	if err == nil {
		err = raftpb.EnsureConfState(conf).Equivalent(t.ConfState())
	}
	return confchange.Changer{Tracker: t}, err
}

// checkChange returns an error if a committed membership change is impossible.
func (d *driver) checkChange(c *raftpb.ConfChangeV2) error {
	changer, err := tracked(d.conf)
	if err != nil {
		return err
	}
	if c.GetTransition() != raftpb.ConfChangeTransitionAuto || len(c.GetChanges()) != 1 {
		return errors.New("members do not propose such membership changes")
	}
	_, _, err = changer.Simple(c.GetChanges()...)
	return err
}

// A contradiction describes a message that cannot occur if this member's disk is correct. The
// library detected it and panicked.
type contradiction string

// contradictions lists prefixes of the library's format strings for contradictions.
var contradictions = [...]string{"tocommit(%d) is out of range", "entry %d conflict with committed"}

// contradictionLogger is a logger that distinguishes contradictions from the library's other
// panics.
type contradictionLogger struct{ raft.Logger }

// Panicf implements raft.Logger.
func (d contradictionLogger) Panicf(format string, v ...any) {
	for _, begin := range contradictions {
		if strings.HasPrefix(format, begin) {
			panic(contradiction(fmt.Sprintf(format, v...)))
		}
	}
	d.Logger.Panicf(format, v...)
}
