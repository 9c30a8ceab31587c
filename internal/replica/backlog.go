package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
)

// backlog is what is committed and not applied: however much is committed at once, when a disk or
// the other members were slow, say, a step applies so much of it only as it has time for, and the
// next step is at once.
type backlog struct {
	committed []*raftpb.Message // with entries
	applied   int               // entries of the first of them
	spent     int64             // the time of the commands applied in this step
}

// stepTime is the time of the commands (see fsm.Cost) that a step applies, beyond
// which it takes no further entry: some ten milliseconds' worth. A leader makes no entry that is
// heavier, but for a single command.
const stepTime = 8192 * fsm.OpTime

func (b *backlog) add(m *raftpb.Message) { b.committed = append(b.committed, m) }

func (b *backlog) any() bool { return len(b.committed) > 0 }

// next returns the next entry to apply, nil if there is none or this step has no time for it; or
// a message whose entries all have been applied.
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

// again says that the entry that next returned last is not applied yet, and that this step has no
// time for more of it.
func (b *backlog) again() {
	b.applied--
	b.spent = stepTime
}

// spend counts the time of a command that was applied.
func (b *backlog) spend(time int64) { b.spent += time }

// rest says that the step is over.
func (b *backlog) rest() { b.spent = 0 }
