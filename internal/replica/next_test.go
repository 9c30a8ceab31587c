//go:build next && !afternext

package replica

import (
	"errors"
	"testing"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
)

// nextLeader returns a leader of the make-believe next release, whose cluster has its version.
func nextLeader(t *testing.T) *member {
	t.Helper()
	m := leadWith(t, version.Spoken, version.Spoken)
	m.r.Tick()
	m.settle()
	if v := m.m.Version(); v.Number != 2 || m.failed != nil {
		t.Fatalf("version %+v, %v", v, m.failed)
	}
	return m
}

// Goal: what the next version has is written while the cluster has that version, and not behind a
// change to the one before. Method: the leader counts at each tick, also while a downgrade waits
// and when it is done; each entry must be readable, and of no version above the cluster's.
func TestNextCommandFollowsVersion(t *testing.T) {
	m := nextLeader(t)
	for range 3 {
		m.r.Tick()
		m.settle()
	}
	before := len(m.written())
	if string(m.written()) != "\x01\x02\x02\x02" {
		t.Errorf("entries of versions %x", m.written())
	}
	fall := &Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}}
	m.r.Propose(fall)
	late := &Proposal{Command: &fsm.Next{Step: 1}}
	m.r.Propose(late)
	m.r.Tick()
	for range 3 {
		m.settle()
		m.r.Tick()
	}
	m.settle()
	if fall.Result.Err != nil || m.failed != nil || m.m.Version().Number != 1 ||
		!errors.Is(late.Err, fsm.ErrVersion) {
		t.Errorf("%+v, %v, %v, version %+v", fall.Result, late.Err, m.failed, m.m.Version())
	}
	if got := string(m.written()[before:]); got != "\x02" {
		t.Errorf("entries of versions %x", got)
	}
}

// An entry that is of a later version than the cluster is no member's, although this one could
// read it: others could not.
func TestEntryAboveClusterVersion(t *testing.T) {
	m := leadWith(t, version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 1})
	data := fsm.AppendCommand(fsm.AppendEntry(nil, 2), &fsm.Put{Key: "k"})
	if err := m.r.raft.Propose(data); err != nil {
		t.Fatal(err)
	}
	m.settle()
	if !errors.Is(m.failed, ErrImpossible) {
		t.Errorf("error %v", m.failed)
	}
}

// The next version's message is read in that version alone.
func TestNextMessage(t *testing.T) {
	m := &Message{Version: 2, From: 1, To: 2, nextMessage: nextMessage{7}}
	got, err := DecodeMessage(1, 2, m.AppendTo(nil))
	if err != nil || got.next != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	m.Version = 1
	if _, err := DecodeMessage(1, 2, m.AppendTo(nil)); !errors.Is(err, encoding.ErrNewer) {
		t.Errorf("in version 1: %v", err)
	}
}
