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
	behind := &Proposal{Command: &fsm.Next{Step: 1}}
	m.r.Propose(behind)
	nested := &Proposal{Command: counted(t)}
	m.r.Propose(nested)
	m.r.Tick()
	for range 3 {
		m.settle()
		m.r.Tick()
	}
	m.settle()
	if fall.Result.Err != nil || m.failed != nil || m.m.Version().Number != 1 ||
		!errors.Is(behind.Err, ErrVersion) || !errors.Is(nested.Err, ErrVersion) {
		t.Errorf("%+v, %v, %v, %v, version %+v", fall.Result, behind.Err, nested.Err, m.failed,
			m.m.Version())
	}
	if got := string(m.written()[before:]); got != "\x02" {
		t.Errorf("entries of versions %x", got)
	}
}

// counted is a command that has something of the next version deep inside.
func counted(t *testing.T) fsm.Command {
	t.Helper()
	del := &fsm.DeleteRange{Key: "k"}
	del.Counted = true
	return &fsm.Once{Command: &fsm.Txn{Else: []fsm.Op{{Txn: &fsm.Txn{Then: []fsm.Op{{Delete: del}}}}}}}
}

// Goal: a member that has missed that the cluster version fell sends no leader of an earlier
// release what that cannot read, nor does it keep what others ask behind it. Method: a command of
// the next version waits until an entry of the leader's term is applied; then it is sent, or
// refused, or no leader was found in time. A plain one goes in each case.
func TestCommandOfVersionThatFell(t *testing.T) {
	fell := fsm.AppendCommand(fsm.AppendEntry(nil, 2), &fsm.SetVersion{Version: 1, Hold: true})
	for name, c := range map[string]struct {
		then [][]byte // the leader's entries
		want error
	}{
		"the version stands": {[][]byte{nil}, nil},
		"it fell":            {[][]byte{fell, nil}, ErrVersion},
		"nothing comes":      {nil, ErrNoLeader},
	} {
		m := late(t)
		put, next := &Proposal{Command: &fsm.Put{Key: "k"}}, &Proposal{Command: counted(t)}
		m.r.Propose(put)
		m.r.Propose(next)
		if v, last := m.forwarded(); v != "\x01" || last != put.Command {
			t.Errorf("%s: at first %T in versions %x", name, last, v)
		}
		m.r.relay.commands.reached(6, m.r.relay.commands.next) // as if the leader had said so
		m.hear(6, 2, 5, c.then...)
		if c.then == nil {
			for range 10 * patience {
				m.r.Tick()
			}
			m.settle()
		}
		sent := len(m.r.relay.commands.sent) > 1
		if !errors.Is(next.Err, c.want) || sent != (c.want == nil) {
			t.Errorf("%s: %v, sent %v", name, next.Err, sent)
		}
	}
}

// Goal: a command of the next version that was sent while the cluster had that version is asked
// again in it, after it fell in the same term, and the commands behind it come through. Method: the
// leader does not answer at first.
func TestForwardedAgainAfterFall(t *testing.T) {
	m := late(t)
	m.hear(6, 2, 5, nil)
	next := &Proposal{Command: counted(t)}
	m.r.Propose(next)
	if v, last := m.forwarded(); v != "\x02" || last != next.Command {
		t.Fatalf("%T in versions %x", last, v)
	}
	fall := &fsm.SetVersion{Version: 1, Hold: true}
	m.hear(6, 3, 6, fsm.AppendCommand(fsm.AppendEntry(nil, 2), fall))
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
	for range 3 {
		m.r.Tick()
	}
	if v, last := m.forwarded(); v != "\x02" || last != next.Command || m.m.Version().Number != 1 {
		t.Errorf("again %T in versions %x, cluster version %+v", last, v, m.m.Version())
	}
}

// An entry that is of a later version than the cluster is no member's, although this one could
// read it: others could not.
func TestEntryAboveClusterVersion(t *testing.T) {
	m := leadWith(t, version.Range{Oldest: 1, Newest: 1}, version.Range{Oldest: 1, Newest: 1})
	data := fsm.AppendCommand(fsm.AppendEntry(nil, 2), &fsm.Put{Key: "k"})
	if err := m.r.raft.propose(data); err != nil {
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
