package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
)

// backlog holds entries that are committed but not yet applied. Many entries can be committed at
// once, for example after a disk or other members have been slow. A step applies only as many as it
// has time for, and another step follows immediately.
type backlog struct {
	committed []*raftpb.Message // messages with entries
	applied   int               // number of applied entries in the first message
	spent     int64             // total cost of the commands applied in this step
}

// stepTime is the total cost of commands (see fsm.Cost) after which a step applies no further
// entry. It is about ten milliseconds. A leader never makes an entry that takes longer, unless a
// single command does.
const stepTime = 8192 * fsm.OpTime

func (b *backlog) add(m *raftpb.Message) { b.committed = append(b.committed, m) }

func (b *backlog) any() bool { return len(b.committed) > 0 }

// next returns the next entry to apply. It returns nil if the backlog is empty or this step has no
// time left. If all entries of a message have been applied, it returns that message instead.
func (b *backlog) next() (e *raftpb.Entry, over *raftpb.Message) {
	if len(b.committed) == 0 {
		b.committed = nil
		return nil, nil
	}
	m := b.committed[0]
	if b.applied == len(m.GetEntries()) {
		b.committed, b.applied = b.committed[1:], 0
		return nil, m
	}
	if b.spent >= stepTime {
		return nil, nil
	}
	e = m.GetEntries()[b.applied]
	b.applied++
	return e, nil
}

// again puts back the entry that next returned last, because this step has no time to finish it.
func (b *backlog) again() {
	b.applied--
	b.spent = stepTime
}

// spend adds the cost of an applied command to this step.
func (b *backlog) spend(time int64) { b.spent += time }

// rest ends the step.
func (b *backlog) rest() { b.spent = 0 }
