package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// scrubBudget is how many records one step of the core cleans up after a
// compaction: about a hundred microseconds' worth.
const scrubBudget = 256

// core owns the replica: one goroutine that takes what came in, advances the
// clock, lets the replica work, and carries out what came of it. All other
// goroutines reach the replica through its inbox.
type core struct {
	replica *replica.Replica
	machine *fsm.Machine
	disk    *storage.Disk
	inbox   *inbox
	writer  *writer
	hub     *watch.Hub[*etcd.Event]
	snap    *snapshotter
	clock   *clock
	log     *slog.Logger
	metrics *metrics

	tick     time.Duration // of Raft
	nextTick lease.Instant
	dirty    bool // the store may hold records that compaction has freed

	view   atomic.Pointer[fsm.View]
	status atomic.Pointer[replica.Status]
	stats  atomic.Pointer[stateStats]
}

// stateStats are numbers of the state that only its owner can read; they are
// published once a tick, for metrics.
type stateStats struct {
	fsm.Stats
	Leases, Attached int
}

func (c *core) publishStats() {
	l := c.machine.Lessor()
	c.stats.Store(&stateStats{Stats: c.machine.Stats(), Leases: l.Len(), Attached: l.Attached()})
}

// run is the core's loop. It returns when ctx ends.
func (c *core) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var m mail
	for {
		select {
		case <-ctx.Done():
			c.stop()
			return nil
		case <-c.inbox.wake:
		case <-timer.C:
		}
		m = c.inbox.take(m)
		timer.Reset(c.step(&m))
	}
}

// step does one round of work and returns how long the core may sleep.
func (c *core) step(m *mail) time.Duration {
	now, jumped := c.clock.read() // after the mail was taken: nothing in it is newer
	c.replica.Advance(now)
	if jumped {
		c.log.Warn("the clock jumped, so every lease gets its full time again")
		c.replica.Refresh()
	}
	if now >= c.nextTick {
		c.replica.Tick()
		c.publishStats()
		c.dirty = true
		c.nextTick = now + lease.Instant(c.tick.Milliseconds())
	}
	c.feed(m)
	begin := time.Now()
	out := c.replica.Take()
	if out.Applied {
		c.metrics.apply.Observe(time.Since(begin).Seconds())
	}
	c.carry(out)
	if c.dirty {
		if c.dirty = c.machine.Scrub(scrubBudget); c.dirty {
			return 0
		}
		c.view.Store(c.machine.View()) // the same but for the size
	}
	wait := c.nextTick - now
	if next, ok := c.replica.Next(); ok {
		wait = min(wait, next-now)
	}
	return time.Duration(max(wait, 0)) * time.Millisecond
}

// feed gives the replica what came in.
func (c *core) feed(m *mail) {
	for _, f := range m.tasks {
		f()
	}
	for _, p := range m.persisted {
		c.replica.Persisted(p)
	}
	for _, n := range m.renewals {
		c.replica.Renew(n)
	}
	for _, q := range m.reads {
		c.replica.Read(q)
	}
	for _, p := range m.proposals {
		c.replica.Propose(p)
	}
}

// carry carries out what came of a step. The order matters: nobody is
// answered before the state he may then read is published.
func (c *core) carry(out replica.Output) {
	c.writer.put(out.Append)
	if out.Applied {
		c.view.Store(c.machine.View())
		c.snap.applied(c)
	}
	if s := c.replica.Status(); *c.status.Load() != s {
		c.status.Store(&s)
	}
	for _, change := range out.Changes {
		c.publish(change)
	}
	c.metrics.observe(out)
	for _, p := range out.Proposals {
		p.Owner.(*call).done <- struct{}{}
	}
	for _, q := range out.Reads {
		q.Owner.(*call).done <- struct{}{}
	}
	for _, n := range out.Renewals {
		n.Owner.(etcd.Renewed).Renewed(n.ID, n.TTL, n.Err)
	}
}

func (c *core) publish(change fsm.Change) {
	events := make([]*etcd.Event, len(change.Events))
	for i := range change.Events {
		events[i] = etcd.NewEvent(&change.Events[i])
	}
	c.hub.Publish(change.Revision, events)
}

// persisted is called by the writer.
func (c *core) persisted(m *raftpb.Message) {
	c.inbox.put(func(box *mail) { box.persisted = append(box.persisted, m) })
}

// stop answers everybody who still waits in the inbox. Those whose commands
// are in the log learn of the stop through node.stopped.
func (c *core) stop() {
	m := c.inbox.close()
	for _, n := range m.renewals {
		n.Owner.(etcd.Renewed).Renewed(n.ID, 0, replica.ErrLeaderChanged)
	}
}
