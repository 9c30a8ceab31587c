package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
)

// Restore takes a snapshot that another member sent: its message, and the
// state that was streamed beside it. It reports whether the snapshot is taken;
// then Output.Append carries a message with it, and the shell makes the streamed
// snapshot the newest on disk, whole or not at all, in the place of that message
// among the others. The state is replaced when that is durable (Persisted).
func (r *Replica) Restore(m *raftpb.Message, machine *fsm.Machine) (taken bool, err error) {
	if m.GetType() != raftpb.MsgSnap || m.GetSnapshot().GetMetadata().GetIndex() != machine.Index() {
		return false, fmt.Errorf("%w: a %s at %d with the state at %d", ErrMessage, m.GetType(),
			m.GetSnapshot().GetMetadata().GetIndex(), machine.Index())
	}
	r.drain() // so that what comes next is this snapshot's doing
	if r.incoming != nil {
		return false, nil // one at a time
	}
	r.failover.heard(r, m.GetFrom())
	r.incoming = machine
	before := len(r.out.Append)
	if err := r.stepRaft(m); err != nil {
		r.incoming = nil
		return false, err
	}
	r.drain()
	for _, a := range r.out.Append[before:] {
		taken = taken || a.GetSnapshot().GetMetadata().GetIndex() == machine.Index()
	}
	if !taken {
		r.incoming = nil
	}
	return taken, nil
}

// incomingTaken checks that Raft takes no snapshot that it was not given.
func (r *Replica) incomingTaken(m *raftpb.Message) {
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) &&
		(r.incoming == nil || r.incoming.Index() != s.GetMetadata().GetIndex()) {
		panic(fmt.Sprintf("replica: raft took a snapshot at %d that nobody streamed",
			s.GetMetadata().GetIndex()))
	}
}

// install puts the streamed state in the place of the old one.
func (r *Replica) install(s *raftpb.Snapshot) {
	m := r.incoming
	r.incoming = nil
	m.Lessor().Advance(r.now)
	r.machine, r.lessor = m, m.Lessor()
	r.conf = s.GetMetadata().GetConfState()
	r.out.Applied, r.out.Restored = true, true
	r.changes.busy = false
	for len(r.pending) > 0 && r.pending[0].index <= m.Index() {
		r.refuseAll(r.pending[0].proposals, ErrLeaderChanged)
		r.pending = r.pending[1:]
	}
	r.forward.forget(r, s.GetMetadata().GetTerm())
}

// SnapshotSent says how the streaming of a snapshot to a member ended. After a
// failure Raft tries again.
func (r *Replica) SnapshotSent(to uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	r.raft.ReportSnapshot(to, status)
}
