package server

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/api/turn"
	"leasehold.dev/internal/directory"
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
	disk    *storage.Disk
	peers   *peers
	inbox   *inbox
	writer  *writer
	news    *leaseNews
	snap    *snapshotter
	caches  openCaches
	clock   *clock
	log     *slog.Logger
	metrics *metrics
	waiting

	machineConfig fsm.Config
	voters        []uint64 // as of the snapshot that the member started from
	pace          pace
	dirty         bool // the store may hold records that compaction has freed
	removed       bool // this member is no longer in the cluster

	view   atomic.Pointer[fsm.View]
	status statusBoard
	stats  atomic.Pointer[stateStats]
}

// waiting is where those are who wait for keys: the lines follow the hub.
type waiting struct {
	hub   *watch.Hub[*api.Event]
	lines *turn.Lines
}

// stateStats are numbers of the state that only its owner can read; they are
// published once a tick, for metrics.
type stateStats struct {
	fsm.Stats
	Leases, Attached int
	Holding          int             // leases that hold ranges
	Open             int             // caches that are open at this member
	Caches           directory.Stats // of the caches of this leader, some time ago
}

func (c *core) publishStats(now lease.Instant) {
	m := c.replica.Machine()
	l := m.Lessor()
	s := &stateStats{
		Stats: m.Stats(), Leases: l.Len(), Attached: l.Attached(),
		Holding: m.HoldCount(), Open: len(c.caches), Caches: c.stats.Load().Caches,
	}
	if now >= c.pace.count {
		s.Caches, c.pace.count = c.replica.CacheStats(), now+countEvery
	}
	c.stats.Store(s)
}

// countEvery is how often the caches are counted, since that is a look at each.
const countEvery = 1000 * lease.Instant(1)

// run is the core's loop. It returns nil when ctx ends, and errRemoved when the
// member is no longer in the cluster.
func (c *core) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	go c.pace.respite.run()
	defer c.pace.respite.close()
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
		wait := c.step(&m)
		if c.removed {
			c.stop()
			return errRemoved
		}
		timer.Reset(wait)
	}
}

// step does one round of work and returns how long the core may sleep.
func (c *core) step(m *mail) time.Duration {
	now, jumped := c.clock.read() // after the mail was taken: nothing in it is newer
	c.replica.Advance(now)
	if stalled := c.pace.stalled(now); jumped || stalled {
		c.log.Warn("time has passed without this member, so every lease it leads gets its "+
			"full time again", "clock-jumped", jumped, "stalled", stalled)
		c.replica.Refresh()
	}
	if c.pace.tick(now) {
		c.replica.Tick()
		c.peers.connected(now)
		c.publishStats(now)
		c.yield(now)
		c.dirty = true
	}
	c.feed(m)
	begin := time.Now()
	out := c.replica.Take()
	if out.Applied {
		c.metrics.apply.Observe(time.Since(begin).Seconds())
	}
	c.carry(out)
	c.pace.respite.follow(c.replica.Held(), c.writer.typical())
	if c.dirty {
		if c.dirty = c.replica.Machine().Scrub(scrubBudget); c.dirty {
			return 0
		}
		c.view.Store(c.replica.Machine().View()) // the same but for the size
	}
	wait := c.pace.next - now
	if next, ok := c.replica.Next(); ok {
		wait = min(wait, next-now)
	}
	return time.Duration(max(wait, 0)) * time.Millisecond
}

// feed gives the replica what came in.
func (c *core) feed(m *mail) {
	if m.hurry {
		c.replica.Hurry()
		c.pace.respite.fired()
	}
	for _, f := range m.tasks {
		f()
	}
	for _, a := range m.arrivals {
		c.install(a)
	}
	for _, p := range m.persisted {
		c.replica.Persisted(p)
	}
	for _, msg := range m.messages {
		if err := c.replica.Step(msg); err != nil {
			c.log.Debug("a message was refused", "from", msg.From, "error", err)
		}
	}
	for _, n := range m.renewals {
		c.replica.Renew(n)
	}
	for _, r := range m.together {
		c.replica.RenewAll(r)
	}
	c.replica.Abandon(m.abandoned)
	for i := range m.caches {
		c.cacheSays(&m.caches[i])
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
	c.peers.send(out.Send)
	c.writer.put(out.Append)
	if out.Applied {
		c.applied(out)
	}
	c.removed = c.removed || out.Removed
	if s := c.replica.Status(); *c.status.Load() != s {
		c.follow(s)
	}
	if !out.Restored { // else the hub was told of a state that shows the changes, too
		api.Publish(c.hub, out.Changes)
	}
	c.metrics.observe(out)
	c.metrics.observeCaches(out, c.log)
	if out.SlowNews {
		c.news.setSlow(c.replica.SlowCaches(), c.clock.now())
	}
	for _, p := range out.Proposals {
		p.Owner.(waiter).answered()
	}
	for _, q := range out.Reads {
		q.Owner.(waiter).answered()
	}
	for _, r := range out.Together {
		r.Owner.(native.RenewedAll).RenewedTogether()
	}
	for i := range out.Renewals {
		renewed(&out.Renewals[i])
	}
	if c.caches.tell(out); len(out.Opened) > 0 {
		c.caches.follow(*c.status.Load())
	}
}

// renewed tells the outcome of a renewal.
func renewed(n *replica.Renewal) {
	switch to := n.Owner.(type) {
	case api.Renewed:
		to.Renewed(n.ID, n.TTL, n.Err)
	case native.RenewedAll:
		to.RenewedOne(n.Place, n.TTL, n.Err)
	}
}

// applied makes the new state readable.
func (c *core) applied(out replica.Output) {
	old, v := c.view.Load(), c.replica.Machine().View()
	c.view.Store(v)
	if !slices.EqualFunc(old.Members, v.Members, sameAddress) ||
		len(old.Removed) != len(v.Removed) {
		c.peers.update(v.Members)
	}
	if out.Restored {
		c.hub.Restore(v.KV.Revision())
		c.snap.restored(v.Index)
	}
	if v.LeaseNews(old) {
		c.news.tell()
	}
	c.snap.applied(c)
}

func sameAddress(a, b fsm.Member) bool {
	return a.ID == b.ID && slices.Equal(a.PeerURLs, b.PeerURLs)
}

// yield hands the leadership over when this member's disk takes no log entries:
// a leader applies nothing that its own disk does not have, so it would keep
// everybody waiting (T1). If nobody else can lead, it stays.
func (c *core) yield(now lease.Instant) {
	if !c.status.Load().Leading || now < c.pace.mayYield {
		return
	}
	stuck, full := c.writer.stuck(c.pace.election), c.writer.full.Load()
	if !stuck && !full {
		return
	}
	c.pace.mayYield = now + yieldEvery*lease.Instant(c.pace.election.Milliseconds())
	if c.replica.Yield() {
		c.log.Warn("the disk takes no log entries: handing the leadership over",
			"stuck", stuck, "full", full)
	}
}

// yieldEvery is how many election timeouts pass, at least, from one attempt to
// hand over to the next: if every disk is full, nobody gains by more.
const yieldEvery = 10

// pace is when the core does what it does at intervals or after a while.
type pace struct {
	heartbeat, election time.Duration
	next                lease.Instant // of Raft's ticks
	last                lease.Instant // the step before
	mayYield            lease.Instant
	count               lease.Instant // of the caches
	respite             *respite
}

// tick reports whether it is time for one.
func (p *pace) tick(now lease.Instant) bool {
	if now < p.next {
		return false
	}
	p.next = now + lease.Instant(p.heartbeat.Milliseconds())
	return true
}

// stalled reports whether the core stood still for as long as it takes the
// others to elect a new leader: the process was stopped, or starved. Holders
// could not renew meanwhile, through no fault of theirs (T1).
func (p *pace) stalled(now lease.Instant) bool {
	gap := now - p.last
	p.last = now
	return gap > lease.Instant(p.election.Milliseconds())
}

// follow tells of the replica's new status.
func (c *core) follow(s replica.Status) {
	old := c.status.Load()
	c.status.put(&s)
	c.metrics.follow(old, &s)
	c.caches.follow(s)
}

// hurry says that commands have waited long enough for others.
func (c *core) hurry() { c.inbox.put(func(box *mail) { box.hurry = true }) }

// stop answers everybody who still waits in the inbox. Those whose commands
// are in the log learn of the stop through node.stopped.
func (c *core) stop() {
	m := c.inbox.close()
	for _, a := range m.arrivals {
		a.refuse(errStopped)
	}
	for _, n := range m.renewals {
		n.Err = replica.ErrLeaderChanged
		renewed(&n)
	}
	for _, r := range m.together {
		for i := range r.IDs {
			r.Owner.(native.RenewedAll).RenewedOne(i, 0, replica.ErrLeaderChanged)
		}
	}
}
