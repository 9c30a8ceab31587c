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
	spent     int               // the weight of the commands applied in this step
}

// stepWeight is the weight of the commands that a step applies, beyond which it takes no further
// entry: some ten milliseconds' worth.
const stepWeight = 8192

// weight is how long it takes about to apply a command, in those of a put.
func weight(c fsm.Command) int {
	switch c := fsm.Inner(c).(type) {
	case *fsm.Expire:
		return 1 + 2*len(c.Leases)
	case *fsm.Checkpoint:
		return 1 + len(c.Leases)
	case *fsm.Txn:
		return 1 + c.Operations()
	default:
		return 1
	}
}

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
	if b.spent >= stepWeight {
		return nil, nil
	}
	e = m.GetEntries()[b.applied]
	b.applied++
	return e, nil
}

// spend counts the weight of a command that was applied.
func (b *backlog) spend(weight int) { b.spent += weight }

// rest says that the step is over.
func (b *backlog) rest() { b.spent = 0 }
