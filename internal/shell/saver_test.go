package shell

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// TestSaver checks that a message is reported as durable only after its content, and everything
// before it, has been written. All accumulated messages share one write, except that everything
// before a snapshot is completed first. State that need not be durable is left for the next write,
// and messages that no caller awaits are not reported.
//
// Each case lists the expected actions for a batch. In the list, w is a write with its entries and
// its commit index.
func TestSaver(t *testing.T) {
	var s Saver
	say := []*raftpb.Message{{}}
	state := func(term, vote, commit uint64, responses ...*raftpb.Message) *raftpb.Message {
		return &raftpb.Message{Term: &term, Vote: &vote, Commit: &commit, Responses: responses}
	}
	entry := func(index uint64) *raftpb.Message {
		return &raftpb.Message{Index: &index, Entries: []*raftpb.Entry{{Index: &index}}, Responses: say}
	}
	snapshot := func(index uint64) *raftpb.Message {
		m := state(2, 0, index, say...)
		m.Snapshot = &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index}}
		return m
	}
	for _, c := range []struct {
		name  string
		batch []*raftpb.Message
		want  string
	}{
		{"an entry", []*raftpb.Message{entry(1)}, "w[1] said1"},
		{"a commit index", []*raftpb.Message{state(0, 0, 1)}, ""},
		{"and then an entry", []*raftpb.Message{entry(2)}, "w[2]c1 said1"},
		{"a response", []*raftpb.Message{state(0, 0, 2, say...)}, "said1"},
		{"entries", []*raftpb.Message{entry(3), entry(4)}, "w[3 4]c2 said2"},
		{
			"an entry, and a response",
			[]*raftpb.Message{entry(5), state(0, 0, 3, say...)},
			"w[5]c3 said2",
		},
		{"entries that replace others", []*raftpb.Message{entry(6), entry(7), entry(6)}, "w[6] said3"},
		{"a term", []*raftpb.Message{state(1, 0, 3, say...)}, "w[]c3 said1"},
		{"the same term", []*raftpb.Message{state(1, 0, 4, say...)}, "said1"},
		{"a vote", []*raftpb.Message{state(1, 1, 4, say...)}, "w[]c4 said1"},
		{"a snapshot", []*raftpb.Message{snapshot(9)}, "install9 w[]c9 said1"},
		{
			"a snapshot between entries",
			[]*raftpb.Message{entry(10), snapshot(20), entry(21)},
			"w[10] said1 install20 w[21]c20 said2",
		},
		{"the term of before", []*raftpb.Message{state(2, 0, 22, say...)}, "said1"},
		{"no term", []*raftpb.Message{{Commit: new(uint64(23)), Responses: say}}, "said1"},
		{"a term that nobody awaits", []*raftpb.Message{{Term: new(uint64(3))}}, ""},
		{"and then an entry of it", []*raftpb.Message{entry(22)}, "w[22]c0 said1"},
		{"a vote alone", []*raftpb.Message{{Vote: new(uint64(1)), Responses: say}}, "w[]c0 said1"},
		{"no vote", []*raftpb.Message{{Commit: new(uint64(24)), Responses: say}}, "said1"},
		{"its commit index with an entry", []*raftpb.Message{entry(23)}, "w[23]c24 said1"},
	} {
		var did []string
		for x := range s.Save(c.batch) {
			did = append(did, said(&x))
		}
		if got := strings.Join(did, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if len(s.taken) > 0 {
			t.Errorf("%s: %d durable messages are kept", c.name, len(s.taken))
		}
	}
	if s.Left() != nil {
		t.Errorf("%v is left to write", s.Left())
	}
	for range s.Save([]*raftpb.Message{state(2, 0, 30)}) {
		t.Error("a commit index is written on its own")
	}
	if s.Left().GetCommit() != 30 {
		t.Errorf("%v is left to write", s.Left())
	}
}

// TestAwaited checks that a message is awaited if it contains responses, entries or a snapshot, and
// not otherwise.
func TestAwaited(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *raftpb.Message
		want bool
	}{
		{"a commit index", &raftpb.Message{Commit: new(uint64(7))}, false},
		{"an entry", &raftpb.Message{Entries: []*raftpb.Entry{{}}}, true},
		{"a response", &raftpb.Message{Responses: []*raftpb.Message{{}}}, true},
		{"a snapshot", &raftpb.Message{Snapshot: &raftpb.Snapshot{
			Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(7))},
		}}, true},
		{"an empty snapshot", &raftpb.Message{Snapshot: &raftpb.Snapshot{}}, false},
	} {
		if Awaited(c.m) != c.want {
			t.Errorf("%s: awaited is %v", c.name, !c.want)
		}
	}
}

// TestSaverStopped checks that the driver can stop after any action, as it does if the disk fails.
// The test stops after the first action, the second, and so on. The runtime panics if a sequence
// continues after that.
func TestSaverStopped(t *testing.T) {
	entry := &raftpb.Message{Entries: []*raftpb.Entry{{}}}
	snapshot := &raftpb.Message{Snapshot: &raftpb.Snapshot{
		Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(7))},
	}}
	batch := []*raftpb.Message{entry, snapshot, entry, {Commit: new(uint64(8))}}
	for stop := 1; ; stop++ {
		var s Saver
		did := 0
		for range s.Save(batch) {
			if did++; did == stop {
				break
			}
		}
		if did < stop {
			if did != 5 {
				t.Errorf("there are %d actions", did)
			}
			return
		}
	}
}

// TestVotesDoNotWait checks that while entries wait for space on the disk, the newest term and vote
// are saved, and each response to a candidate is sent exactly once. Everything else waits and is
// reported later. If even the vote cannot be saved, candidates receive no responses.
func TestVotesDoNotWait(t *testing.T) {
	response := func(kind raftpb.MessageType, term uint64) *raftpb.Message {
		return &raftpb.Message{Type: &kind, Term: &term}
	}
	var s Saver
	stuck := &raftpb.Message{
		Term: new(uint64(1)), Vote: new(uint64(9)), Entries: []*raftpb.Entry{{Index: new(uint64(1))}},
		Responses: []*raftpb.Message{response(raftpb.MsgAppResp, 1)},
	}
	behind := &raftpb.Message{
		Term: new(uint64(2)), Vote: new(uint64(7)), Commit: new(uint64(5)),
		Responses: []*raftpb.Message{response(raftpb.MsgVoteResp, 2), response(raftpb.MsgAppResp, 2)},
	}
	queued := &raftpb.Message{
		Term: new(uint64(3)), Vote: new(uint64(8)), Commit: new(uint64(5)),
		Responses: []*raftpb.Message{response(raftpb.MsgPreVoteResp, 3), response(raftpb.MsgVoteResp, 3)},
	}
	var did []string
	save := func(term, vote uint64) error {
		did = append(did, fmt.Sprint("vote", vote, "in", term))
		return nil
	}
	full := errors.New("full")
	for x := range s.Save([]*raftpb.Message{stuck, behind}) {
		did = append(did, said(&x))
		if len(x.Entries) == 0 {
			continue
		}
		_, err := s.Votes([]*raftpb.Message{queued}, func(uint64, uint64) error { return full })
		if !errors.Is(err, full) {
			t.Errorf("error: %v", err)
		}
		for range 2 {
			m, err := s.Votes([]*raftpb.Message{queued}, save)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range m.GetResponses() {
				did = append(did, fmt.Sprintf("%v%d", r.GetType(), r.GetTerm()))
			}
		}
	}
	for x := range s.Save([]*raftpb.Message{queued}) {
		did = append(did, said(&x))
	}
	want := "w[1]c5 vote8in3 MsgVoteResp2 MsgPreVoteResp3 MsgVoteResp3 said2"
	if got := strings.Join(did, " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func said(x *Saving) string {
	if x.Install != nil {
		return fmt.Sprint("install", x.Install.GetSnapshot().GetMetadata().GetIndex())
	}
	if len(x.Saved) > 0 {
		return fmt.Sprint("said", len(x.Saved))
	}
	var list []uint64
	for _, e := range x.Entries {
		list = append(list, e.GetIndex())
	}
	out := fmt.Sprint("w", list)
	if x.State != nil {
		out += fmt.Sprint("c", x.State.GetCommit())
	}
	return out
}

// TestSaverGrows checks that many small messages are combined into one write, and that entries are
// copied only a few times each rather than once per message. It counts allocations to check this.
func TestSaverGrows(t *testing.T) {
	batch := make([]*raftpb.Message, 4096)
	for i := range batch {
		batch[i] = &raftpb.Message{Entries: []*raftpb.Entry{{Index: new(uint64(i + 1))}}}
	}
	allocs := testing.AllocsPerRun(1, func() {
		var s Saver
		for x := range s.Save(batch) {
			if n := len(x.Entries); n > 0 && n != len(batch) {
				t.Errorf("%d entries at once", n)
			}
		}
	})
	if allocs > 200 {
		t.Errorf("%v allocations for %d messages", allocs, len(batch))
	}
}
