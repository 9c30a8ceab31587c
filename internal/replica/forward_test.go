package replica

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
)

// newForwarder returns the forwarder of a member that follows member 1 in term 3.
func newForwarder() *forwarder {
	m := &local{
		cfg:     Config{ID: 2, MaxBatch: 1 << 20, ElectionTicks: 10, HeartbeatTicks: 1},
		machine: fsm.New(fsm.Config{}), role: role{term: 3, leader: 1},
	}
	f := &forwarder{m: m, next: 100}
	f.begin(3)
	return f
}

func (f *forwarder) proposeKeys(keys ...string) (all []*Proposal) {
	for _, key := range keys {
		all = append(all, &Proposal{Command: &fsm.Put{Key: key}})
		f.propose(all[len(all)-1])
	}
	return all
}

// TestForwarderNumbers: commands go in their order, each with a number of its own; those that come
// before the leader has told that it has the others share the next message, and those that get lost
// are sent again under the same numbers.
func TestForwarderNumbers(t *testing.T) {
	f := newForwarder()
	f.proposeKeys("a", "b")
	first := f.message()
	f.fill(&first)
	if first.First != 100 || first.Base != 100 || len(first.Commands) != 2 {
		t.Fatalf("%+v", first)
	}
	f.proposeKeys("c")
	held := f.message()
	if f.fill(&held); len(held.Commands) != 0 {
		t.Error("does not wait for the leader's word")
	}
	f.tick()
	if f.tick(); len(f.m.out.Send) != 1 {
		t.Fatalf("%d messages", len(f.m.out.Send))
	}
	if again := f.m.out.Send[0].Forward; again.First != 100 || len(again.Commands) != 2 {
		t.Errorf("sent again: %+v", again)
	}
	f.reached(3, 102)
	next := f.message()
	if f.fill(&next); next.First != 102 || len(next.Commands) != 1 {
		t.Errorf("%+v", next)
	}
}

// TestForwarderOutcomes: the log answers commands, the leader refuses them, an entry of a later
// term shows that they are lost, and a snapshot that their outcome cannot be known.
func TestForwarderOutcomes(t *testing.T) {
	f := newForwarder()
	all := f.proposeKeys("a", "b", "c", "d")
	msg := f.message()
	f.fill(&msg)
	f.applied(3, fsm.Group{
		Origin: fsm.Origin{Member: 2, Seq: 99}, Commands: make([]fsm.Command, 2),
	}, []fsm.Result{{Revision: 7}, {Revision: 8}})
	if all[0].Result.Revision != 8 || f.received != 101 {
		t.Errorf("%+v, the leader has all below %d", all[0], f.received)
	}
	f.refused([]Refusal{{Seq: 101, Code: codeOf(ErrOverloaded)}, {Seq: 7}})
	if !errors.Is(all[1].Err, ErrOverloaded) {
		t.Errorf("refused: %v", all[1].Err)
	}
	f.requeue(3)
	if len(f.queue) > 0 {
		t.Error("takes commands of the same term for lost")
	}
	f.requeue(4)
	if !slices.Equal(f.queue, all[2:]) || len(f.sent) != 0 {
		t.Fatalf("%d commands are sent again, %d kept", len(f.queue), len(f.sent))
	}
	f.begin(4)
	msg = f.message()
	f.fill(&msg)
	if f.swallowed(4); !errors.Is(all[2].Err, ErrLeaderChanged) {
		t.Errorf("behind a snapshot: %v", all[2].Err)
	}
	want := []*Proposal{all[0], all[1], all[2], all[3]}
	if !slices.Equal(f.m.out.Proposals, want) {
		t.Errorf("%d answers", len(f.m.out.Proposals))
	}
}
