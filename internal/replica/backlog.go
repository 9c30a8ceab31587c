package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
)

// backlog holds entries that are committed and not applied. Many may be committed at once, for
// example after a disk or other members were slow. A step applies only as many as it has time for,
// and the next step follows at once.
type backlog struct {
	committed []*raftpb.Message // with entries
	applied   int               // entries of the first of them
	spent     int64             // the time of the commands applied in this step
}

// stepTime is the time of commands (see fsm.Cost) after which a step applies no further entry:
// about ten milliseconds. A leader makes no entry that takes longer, except for a single command.
const stepTime = 8192 * fsm.OpTime

func (b *backlog) add(m *raftpb.Message) { b.committed = append(b.committed, m) }

func (b *backlog) any() bool { return len(b.committed) > 0 }

// next returns the next entry to apply, or nil if there is none or this step has no time for it.
// Instead it may return a message whose entries have all been applied.
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

// again puts back the last entry from next: this step has no time for the rest of it.
func (b *backlog) again() {
	b.applied--
	b.spent = stepTime
}

// spend counts the time of a command that was applied.
func (b *backlog) spend(time int64) { b.spent += time }

// rest ends the step.
func (b *backlog) rest() { b.spent = 0 }
