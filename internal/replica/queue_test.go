package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
)

// newQueue returns the queue of a leader that has not applied anything.
func newQueue(t *testing.T) *queue {
	t.Helper()
	m := fsm.New(fsm.Config{})
	return &queue{machine: m, maxBatch: 1 << 20}
}

func (q *queue) mustAdd(t *testing.T, list ...*Proposal) {
	t.Helper()
	for _, p := range list {
		if err := q.add(p); err != nil {
			t.Fatal(err)
		}
	}
}

// next returns the next entry, assuming that all entries in the log have been applied.
func (q *queue) next() (data []byte, of []*Proposal) {
	data, b := q.entry(0)
	return data, b.proposals
}

// TestQueueFillsStep checks that an entry takes no longer to apply than the limit for one step,
// unless it has a single command. The origin of the commands does not matter.
func TestQueueFillsStep(t *testing.T) {
	for _, from := range []uint64{0, 7} {
		q := newQueue(t)
		for i := range uint64(5) {
			heavy := &fsm.Txn{Then: make([]fsm.Op, stepPuts/2)}
			for k := range heavy.Then {
				heavy.Then[k].Put = &fsm.Put{Key: "k"}
			}
			if i == 3 {
				heavy.Then = append(heavy.Then, heavy.Then...)
			}
			both := []*Proposal{{Command: heavy}, {Command: &fsm.Put{Key: "k"}}}
			for k, p := range both {
				if from != 0 {
					p.origin = fsm.Origin{Member: from, Seq: 100 + 2*i + uint64(k)}
				}
			}
			q.mustAdd(t, both...)
		}
		var got []int
		for len(q.waiting) > 0 {
			data, of := q.next()
			groups, err := fsm.DecodeEntry(data)
			if len(groups) > len(of) || from != 0 && len(groups) != 1 {
				t.Errorf("from %d: %d commands in %d groups, %v", from, len(of), len(groups), err)
			}
			got = append(got, len(of))
			q.remove(len(of))
		}
		if want := []int{2, 2, 2, 1, 3}; !slices.Equal(got, want) {
			t.Errorf("from %d: entries of %v commands, want %v", from, got, want)
		}
	}
}

// TestQueueStopsAtVersion checks that nothing is appended after a change of the cluster version
// until the change is applied. As soon as the change is queued, commands that it will disable are
// rejected.
func TestQueueStopsAtVersion(t *testing.T) {
	q := newQueue(t)
	fall := &Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}}
	put := &Proposal{Command: &fsm.Put{Key: "k"}}
	q.mustAdd(t, put, fall, put)
	if v := q.version(); v != 1 || q.ceiling != 1 {
		t.Errorf("version %d after lowering to 1", v)
	}
	_, of := q.next()
	q.remove(len(of))
	if len(of) != 2 || q.due(0, 0) || len(q.waiting) != 1 {
		t.Fatalf("%d commands in the entry, %d waiting, due %v", len(of), len(q.waiting), q.due(0, 0))
	}
	log := inflight{{index: 1, term: 1, proposals: of}}
	q.ended(put, &log)
	if q.due(0, 0) {
		t.Error("continued at another command's outcome")
	}
	log = nil
	q.ended(fall, &log)
	if !q.due(0, 0) || q.ceiling != 0 {
		t.Errorf("due %v, ceiling %d", q.due(0, 0), q.ceiling)
	}
	log = inflight{{index: 1, term: 1, proposals: of}} // of an earlier term
	if q.ended(fall, &log); !q.due(0, 0) {
		t.Error("waits for another leader's change")
	}
	q.mustAdd(t, fall)
	if q.ended(fall, &log); q.ceiling != 1 {
		t.Errorf("ceiling %d, and a lowering still waits", q.ceiling)
	}
}

// TestLargestCommand checks that a command can have MaxCommand bytes at any position in an entry. A
// larger command from another member, perhaps one with a later release, is rejected when it reaches
// the front.
func TestLargestCommand(t *testing.T) {
	put := &fsm.Put{Key: "k", Value: make([]byte, MaxCommand-100)}
	put.Value = make([]byte, 2*MaxCommand-100-len(fsm.AppendCommand(nil, put)))
	data, ok := appendCommand([]byte("before"), put)
	if !ok || len(data) != len("before")+MaxCommand {
		t.Errorf("command of %d bytes: %v", len(data), ok)
	}
	put.Value = append(put.Value, 0)
	if _, ok := appendCommand([]byte("before"), put); ok {
		t.Error("a command with one more byte was accepted")
	}
	q := newQueue(t)
	for seq := range uint64(3) {
		p := &Proposal{Command: &fsm.Put{Key: "k"}, origin: fsm.Origin{Member: 7, Seq: seq}}
		if seq == 1 {
			p.Command = put
		}
		q.mustAdd(t, p)
	}
	for i, want := range []int{1, 0, 1} {
		_, of := q.next()
		if len(of) != want {
			t.Errorf("entry %d has %d commands", i, len(of))
		}
		q.remove(1)
	}
}

// TestQueueCountsWithTheLowestVersion checks that commands queued behind changes of the cluster
// version must fit the lowest version that any of the changes sets. Raising the version takes
// effect only when it is applied.
func TestQueueCountsWithTheLowestVersion(t *testing.T) {
	two := version.Range{Oldest: 1, Newest: 2}
	for _, x := range []struct {
		now, want byte
		changes   []byte
	}{
		{1, 1, nil},
		{2, 2, nil},
		{1, 1, []byte{2}},
		{2, 1, []byte{1}},
		{2, 1, []byte{1, 2}},
		{2, 1, []byte{2, 1}},
	} {
		m := fsm.New(fsm.Config{Versions: two})
		m.AddMember(fsm.Member{ID: 1, Versions: two})
		if r := m.Apply(&fsm.SetVersion{Version: 2}); x.now == 2 && r.Err != nil {
			t.Fatal(r.Err)
		} else if x.now == 1 {
			m = fsm.New(fsm.Config{Versions: two})
		}
		q := &queue{machine: m, maxBatch: 1 << 20}
		for _, v := range x.changes {
			q.mustAdd(t, &Proposal{Command: &fsm.SetVersion{Version: v}})
		}
		if got := q.version(); got != x.want {
			t.Errorf("version %d, changes to %v: %d afterwards, want %d", x.now, x.changes, got,
				x.want)
		}
	}
}

// stepPuts is the number of puts that fit into one step.
const stepPuts = stepTime / fsm.OpTime
