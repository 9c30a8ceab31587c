package replica

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
)

// Restore accepts a snapshot from another member: its message, and the state that was streamed
// separately. It reports whether it accepted the snapshot. If so, Output.Append will contain a
// message with the snapshot. When the shell reaches that message, it atomically makes the streamed
// snapshot the newest on disk. Once the snapshot is durable (see Persisted), it replaces the state.
func (r *Replica) Restore(m *raftpb.Message, machine *fsm.Machine) (taken bool, err error) {
	index := m.GetSnapshot().GetMetadata().GetIndex()
	if index != machine.Index() {
		return false, fmt.Errorf("%w: a %s at index %d, but the state is at index %d", ErrMessage,
			m.GetType(), index, machine.Index())
	}
	if r.incoming != nil {
		return false, nil // only one at a time
	}
	r.incoming, r.raft.offered = machine, index
	before := len(r.out.Append)
	if err := r.raft.step(m, r.role); err != nil {
		r.incoming, r.raft.offered = nil, 0
		return false, err
	}
	r.drain()
	taken = slices.ContainsFunc(r.out.Append[before:], func(a *raftpb.Message) bool {
		return a.GetSnapshot().GetMetadata().GetIndex() == index
	})
	if !taken {
		r.incoming, r.raft.offered = nil, 0
	}
	return taken, nil
}

// install replaces the state with the streamed state.
func (r *Replica) install(s *raftpb.Snapshot) {
	m := r.incoming
	r.incoming, r.raft.offered = nil, 0
	m.Lessor().Advance(r.now)
	r.machine, r.lessor = m, m.Lessor()
	r.raft.conf = s.GetMetadata().GetConfState()
	r.out.Applied, r.out.Restored = true, true
	r.stopIfDamaged()
	for _, p := range own(r.inflight.takeReplaced(m.Index())) {
		r.out.refuse(p, ErrLeaderChanged)
	}
	r.relay.commands.rejectReplaced(s.GetMetadata().GetTerm())
}

// SnapshotSent reports whether streaming a snapshot to a member succeeded. After a failure, Raft
// tries again.
func (r *Replica) SnapshotSent(to uint64, ok bool) {
	status := raft.SnapshotFinish
	if !ok {
		status = raft.SnapshotFailure
	}
	r.raft.node.ReportSnapshot(to, status)
}
