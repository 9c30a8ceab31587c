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

func (b *backlog) any() bool { return len(b.committed) > 0 }

// applyNext applies the entries that are committed, as many as this step has time for.
func (r *Replica) applyNext() {
	b := &r.backlog
	for b.any() {
		m := b.committed[0]
		for ; b.applied < len(m.GetEntries()); b.applied++ {
			if b.spent >= stepWeight {
				return
			}
			r.apply(m.GetEntries()[b.applied])
		}
		b.committed, b.applied = b.committed[1:], 0
		for _, resp := range m.GetResponses() {
			r.route(resp)
		}
	}
	b.committed = nil
}
