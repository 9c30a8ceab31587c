package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// node wraps the Raft library's node. Asking the library whether anything is ready allocates
// memory, and a step asks several times. So node records whether any method has been called since
// the library last had nothing ready.
type node struct {
	raw *raft.RawNode
	// touched is true if something may be ready.
	touched bool
}

// touch marks the node as touched and returns it, for a call that may make something ready.
func (n *node) touch() *raft.RawNode {
	n.touched = true
	return n.raw
}

// HasReady reports whether Ready has something to return.
func (n *node) HasReady() bool {
	n.touched = n.touched && n.raw.HasReady()
	return n.touched
}

// These methods pass their calls on to the library.

func (n *node) Ready() raft.Ready             { return n.touch().Ready() }
func (n *node) Tick()                         { n.touch().Tick() }
func (n *node) Step(m *raftpb.Message) error  { return n.touch().Step(m) }
func (n *node) Propose(data []byte) error     { return n.touch().Propose(data) }
func (n *node) Campaign() error               { return n.touch().Campaign() }
func (n *node) ReadIndex(context []byte)      { n.touch().ReadIndex(context) }
func (n *node) ForgetLeader() error           { return n.touch().ForgetLeader() }
func (n *node) TransferLeader(to uint64)      { n.touch().TransferLeader(to) }
func (n *node) ReportUnreachable(id uint64)   { n.touch().ReportUnreachable(id) }
func (n *node) BasicStatus() raft.BasicStatus { return n.raw.BasicStatus() }
func (n *node) WithProgress(visit func(uint64, raft.ProgressType, tracker.Progress)) {
	n.raw.WithProgress(visit)
}

func (n *node) ReportSnapshot(id uint64, s raft.SnapshotStatus) {
	n.touch().ReportSnapshot(id, s)
}

func (n *node) ProposeConfChange(c raftpb.ConfChangeI) {
	_ = n.touch().ProposeConfChange(c) // see driver.proposeChange
}

func (n *node) ApplyConfChange(c raftpb.ConfChangeI) *raftpb.ConfState {
	return n.touch().ApplyConfChange(c)
}
