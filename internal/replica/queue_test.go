package replica

import (
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
)

// newQueue returns the queue of a leader that has applied nothing.
func newQueue(t *testing.T) *queue {
	t.Helper()
	m := fsm.New(fsm.Config{})
	return &queue{m: &local{cfg: Config{MaxBatch: 1 << 20}, machine: m}}
}

func (q *queue) mustAdd(t *testing.T, list ...*Proposal) {
	t.Helper()
	for _, p := range list {
		if err := q.add(p); err != nil {
			t.Fatal(err)
		}
	}
}

// TestQueueSharesEntries: all that waits goes into one entry, in its order, once no append is being
// synced; those of another member that follow each other are one group of it.
func TestQueueSharesEntries(t *testing.T) {
	q := newQueue(t)
	for i := range uint64(6) {
		p := &Proposal{Command: &fsm.Put{Key: fmt.Sprint(i)}}
		if i >= 2 && i < 5 {
			p.origin = fsm.Origin{Member: 7, Seq: 100 + i}
		}
		q.mustAdd(t, p)
	}
	if q.due(1) || !q.due(0) {
		t.Errorf("due %v during a sync, %v after it", q.due(1), q.due(0))
	}
	if n := q.first(); n != 1 {
		t.Errorf("the first has number %d", n)
	}
	data, of := q.next()
	groups, err := fsm.DecodeEntry(data)
	if err != nil || len(of) != 6 || len(groups) != 3 || len(groups[1].Commands) != 3 ||
		groups[1].Origin != (fsm.Origin{Member: 7, Seq: 102}) {
		t.Fatalf("%d commands in %+v: %v", len(of), groups, err)
	}
	q.remove(len(of))
	if q.due(0) || q.first() != 7 {
		t.Errorf("the next has number %d", q.first())
	}
}

// next returns an entry when nothing is in the log that is not applied.
func (q *queue) next() (data []byte, of []*Proposal) {
	data, b := q.entry(0)
	return data, b.proposals
}

// TestQueueWeighsKeysUnderWay: what works on a range weighs also the keys that commands in the log,
// and those before it in the entry, may have made: so a member does not find itself with an entry
// of deletions that take a second.
func TestQueueWeighsKeysUnderWay(t *testing.T) {
	q := newQueue(t)
	many := &fsm.Txn{Then: make([]fsm.Op, stepWeight/2)}
	for i := range many.Then {
		many.Then[i].Put = &fsm.Put{Key: fmt.Sprint("k", i)}
	}
	remove := &fsm.DeleteRange{Key: "a", End: "z"}
	few := &fsm.Txn{Then: []fsm.Op{{Delete: remove}, {Revoke: &fsm.Revoke{ID: 1}}}}
	for _, c := range []fsm.Command{many, remove, remove, few, &fsm.Put{Key: "k"}} {
		q.mustAdd(t, &Proposal{Command: c})
	}
	var got, weights []int
	var log inflight
	for len(q.waiting) > 0 {
		_, b := q.entry(log.weight())
		got, weights = append(got, len(b.proposals)), append(weights, b.weight)
		q.remove(len(b.proposals))
		log = append(log, b)
	}
	if want := []int{1, 1, 1, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("entries of %v commands with the weights %v, want %v", got, weights, want)
	}
	q.mustAdd(t, &Proposal{Command: remove}, &Proposal{Command: few}, &Proposal{Command: remove})
	if _, of := q.next(); len(of) != 3 {
		t.Errorf("an entry of %d commands, and nothing is under way", len(of))
	}
}

// TestQueueWeighs: an entry is no heavier than a step may be, or a single command, whichever member
// sent it.
func TestQueueWeighs(t *testing.T) {
	for _, from := range []uint64{0, 7} {
		q := newQueue(t)
		for i := range uint64(5) {
			heavy := &fsm.Txn{Then: make([]fsm.Op, stepWeight/2)}
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
			_, of := q.next()
			got = append(got, len(of))
			q.remove(len(of))
		}
		if want := []int{2, 2, 2, 1, 3}; !slices.Equal(got, want) {
			t.Errorf("from %d: entries of %v commands, want %v", from, got, want)
		}
	}
}

// TestQueueStopsAtVersion: nothing follows a change of the cluster version into the log before that
// is applied, and what it will take away is refused from when it waits.
func TestQueueStopsAtVersion(t *testing.T) {
	q := newQueue(t)
	fall := &Proposal{Command: &fsm.SetVersion{Version: 1, Hold: true}}
	put := &Proposal{Command: &fsm.Put{Key: "k"}}
	q.mustAdd(t, put, fall, put)
	if v := q.version(); v != 1 || q.ceiling != 1 {
		t.Errorf("version %d holds behind a fall to 1", v)
	}
	_, of := q.next()
	q.remove(len(of))
	if len(of) != 2 || q.due(0) || len(q.waiting) != 1 {
		t.Fatalf("%d commands in the entry, %d wait, due %v", len(of), len(q.waiting), q.due(0))
	}
	log := inflight{{index: 1, term: 1, proposals: of}}
	q.ended(put, &log)
	if q.due(0) {
		t.Error("goes on at another command's outcome")
	}
	log = nil
	q.ended(fall, &log)
	if !q.due(0) || q.ceiling != 0 {
		t.Errorf("due %v, ceiling %d", q.due(0), q.ceiling)
	}
}
