package server

import (
	"sync/atomic"

	"leasehold.dev/internal/replica"
)

// statusBoard publishes the replica's status on behalf of the core, and lets callers wait until the
// leader changes.
type statusBoard struct {
	now    atomic.Pointer[replica.Status]
	leader atomic.Pointer[leaderNotice]
}

// leaderNotice is the current leader, until changed is closed.
type leaderNotice struct {
	id      uint64
	changed chan struct{}
}

// Load returns the status after the core's last step.
func (b *statusBoard) Load() *replica.Status { return b.now.Load() }

// put publishes a status. It is called only by the core.
func (b *statusBoard) put(s *replica.Status) {
	b.now.Store(s)
	old := b.leader.Load()
	if old != nil && old.id == s.Leader {
		return
	}
	b.leader.Store(&leaderNotice{id: s.Leader, changed: make(chan struct{})})
	if old != nil {
		close(old.changed)
	}
}

// Leader implements native.Node.
func (n *node) Leader() (id uint64, changed <-chan struct{}) {
	l := n.status.leader.Load()
	return l.id, l.changed
}
