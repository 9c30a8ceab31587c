package server

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/watch"
	"leasehold.dev/test/virtual"
)

// arrive returns a complete snapshot, ready to be installed by s.
func arrive(t *testing.T, s *Server) *arrival {
	t.Helper()
	const index = 1_000_000
	foreign := fsm.New(fsm.Config{})
	foreign.Begin(index, 1)
	foreign.Apply(&fsm.Put{Key: "k", Value: []byte("v")})
	self := s.node.member
	m, err := replica.DecodeMessage(self+1, self, snapshotHeader(self+1, self, index))
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.core.disk.NewSnapshot(storage.SnapshotMeta{
		Index: index, Term: 1, ConfState: m.Raft.GetSnapshot().GetMetadata().GetConfState(),
	})
	if err != nil {
		t.Fatalf("the snapshot before was not dropped: %v", err)
	}
	if err := foreign.Image().Encode(w.Write); err != nil {
		t.Fatal(err)
	}
	return &arrival{message: m.Raft, machine: foreign, writer: w, done: make(chan error, 1)}
}

// TestStopDropsSnapshot checks that when the member stops, a snapshot at any stage of its
// installation is dropped and its sender receives an error. The test runs the goroutines' steps one
// at a time.
func TestStopDropsSnapshot(t *testing.T) { virtual.Test(t, testStopDropsSnapshot) }

func testStopDropsSnapshot(t *testing.T) {
	s, err := New(testConfig(shortDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	refused := func(where string, a *arrival) {
		t.Helper()
		select {
		case err := <-a.done:
			if !errors.Is(err, errStopped) {
				t.Errorf("%s: %v", where, err)
			}
		default:
			t.Errorf("%s: the sender is not told", where)
		}
	}

	a := arrive(t, s)
	s.core.inbox.put(func(m *mail) { m.Arrivals = append(m.Arrivals, a.mail()) })
	s.core.step()
	if s.core.writer.arrival != a {
		t.Fatal("the replica does not want it")
	}
	s.core.writer.abandon() // as happens when the writer or the core fails first
	refused("taken and not yet written", a)

	a = arrive(t, s)
	s.core.inbox.put(func(m *mail) { m.Arrivals = append(m.Arrivals, a.mail()) })
	s.core.stop()
	refused("in the inbox", a)

	a = arrive(t, s)
	if err := s.core.inbox.offer(t.Context(), a); !errors.Is(err, errStopped) {
		t.Errorf("after the stop: %v", err)
	}

	arrive(t, s).writer.Abort()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotHeader checks that a snapshot is rejected before its content is read if its header is
// not a Raft snapshot message.
func TestSnapshotHeader(t *testing.T) { virtual.Test(t, testSnapshotHeader) }

func testSnapshotHeader(t *testing.T) {
	s, err := New(testConfig(shortDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	from, to := s.node.member+1, s.node.member
	other, err := replica.DecodeMessage(from, to, snapshotHeader(from, to, 1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	other.Raft.Type = raftpb.MsgApp.Enum()
	reply := &replica.Message{Version: 1, From: from, To: to, Reply: &replica.Reply{}}
	for what, header := range map[string][]byte{
		"nothing": nil, "garbage": bytes.Repeat([]byte{1}, 9),
		"another of Raft's messages": other.AppendTo(nil), "a reply": reply.AppendTo(nil),
	} {
		err := s.peers.Snapshot(t.Context(), from, header, func() ([]byte, error) {
			t.Errorf("%s: a chunk was read", what)
			return nil, io.EOF
		})
		if !errors.Is(err, replica.ErrMessage) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSnapshotAlreadyHad checks that a snapshot of state that the member already has is reported as
// received. Otherwise, a leader whose log has been compacted too far would resend it forever.
func TestSnapshotAlreadyHad(t *testing.T) { virtual.Test(t, testSnapshotAlreadyHad) }

func testSnapshotAlreadyHad(t *testing.T) {
	s, err := New(testConfig(shortDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	from, to := s.node.member+1, s.node.member
	header := snapshotHeader(from, to, s.node.View().Index)
	err = s.peers.Snapshot(t.Context(), from, header, func() ([]byte, error) {
		t.Error("a chunk was read")
		return nil, io.EOF
	})
	if err != nil {
		t.Errorf("the sender is told: %v", err)
	}
}

// TestEntriesBehindSnapshot checks that a snapshot and the entries after it can become durable in
// one sync and visible in one step. Watchers still receive every event, from the history.
func TestEntriesBehindSnapshot(t *testing.T) { virtual.Test(t, testEntriesBehindSnapshot) }

func testEntriesBehindSnapshot(t *testing.T) {
	s, err := New(testConfig(shortDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := s.core
	watcher := c.hub.NewStream()
	defer watcher.Close()
	if _, err := watcher.Watch(watch.Request{Key: "k", From: 1}); err != nil {
		t.Fatal(err)
	}
	watcher.Poll() // the notice that the watch was created

	a := arrive(t, s)
	c.inbox.put(func(m *mail) { m.Arrivals = append(m.Arrivals, a.mail()) })
	c.step()
	at := a.machine.Index()
	entry := fsm.AppendCommand(fsm.AppendEntry(nil, 1), &fsm.Put{Key: "k", Value: []byte("w")})
	from, to := s.node.member+1, s.node.member
	c.inbox.putMessage(&replica.Message{Version: 1, From: from, To: to, Raft: &raftpb.Message{
		Type: raftpb.MsgApp.Enum(), From: &from, To: &to, Term: new(uint64(1)),
		LogTerm: new(uint64(1)), Index: &at, Commit: new(at + 1),
		Entries: []*raftpb.Entry{{Term: new(uint64(1)), Index: new(at + 1), Data: entry}},
	}})
	c.step()
	if err := c.writer.writeAll(t.Context(), c.writer.take(nil)); err != nil {
		t.Fatal(err)
	}
	c.step()

	c.hub.Distribute()
	var got []string
	for b, ok := watcher.Poll(); ok; b, ok = watcher.Poll() {
		for _, e := range b.Events {
			got = append(got, string(e.Change().KV.Value))
		}
	}
	if !slices.Equal(got, []string{"v", "w"}) {
		t.Errorf("the events are of %q", got)
	}
}
