package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/authn"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/internal/member/timing"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// core owns the replica and the shell around it. One goroutine performs the actions returned by the
// shell. All other goroutines access the replica through the core's inbox.
type core struct {
	replica *replica.Replica
	shell   *shell.Shell
	disk    *storage.Disk
	peers   *peers
	inbox   *inbox
	writer  *writer
	snap    *snapshotter
	clock   *clock
	log     *slog.Logger
	metrics *metrics.Metrics
	tracer  *timing.Tracer // can be nil
	waiting

	dir         string // data directory
	commitDelay *commitDelay
	election    time.Duration
	next        next
	began       startup

	view    atomic.Pointer[fsm.View]
	status  statusBoard
	stopped chan struct{} // closed when the core has stopped
	stats   atomic.Pointer[metrics.State]
}

// startup describes a member's state when it started, and whether the member has caught up since.
type startup struct {
	voters []uint64 // voters in the snapshot that it started from
	logged uint64   // last index in the log at the start
	// whether the state has caught up with the cluster, so that any further changes are new
	current bool
}

// waiting holds the watchers of keys and of lease events. The wait queues get their events from the
// hub.
type waiting struct {
	news           *leaseNews
	hub            *watch.Hub[*api.Event]
	waitQueues     *waitqueue.Queues
	*authn.Changes // changes to users, roles and bindings
}

// Watches can use 1/watchPart of the memory, but at least leastWatches bytes.
const watchPart, leastWatches = 8, 256 << 20

func newWaiting(view func() *fsm.View, memory uint64) waiting {
	hub := watch.New(func() watch.History[*api.Event] { return api.NewHistory(view().KV) },
		watch.Options{Watches: max(leastWatches, int64(memory/watchPart))})
	return waiting{
		news: newLeaseNews(), hub: hub, Changes: authn.NewChanges(),
		waitQueues: waitqueue.New(hub, func() *mvcc.View { return view().KV }),
	}
}

// View implements etcd.Node.
func (c *core) View() *fsm.View { return c.view.Load() }

// next holds when the core's infrequent tasks are due.
type next struct {
	count     lease.Instant // when to count the caches
	malformed lease.Instant // when to log a malformed message
	// leaderless is when to warn that there is no leader. It is 0 if there is a leader or the
	// warning has been logged.
	leaderless lease.Instant
}

// publishStats publishes statistics of the state for the metrics.
func (c *core) publishStats(now lease.Instant) {
	m := c.replica.Machine()
	l := m.Lessor()
	s := &metrics.State{
		Stats: m.Stats(), Leases: l.Len(), Attached: l.Attached(),
		Holding: m.HoldCount(), Open: c.shell.OpenCaches(), Caches: c.stats.Load().Caches,
		Lags: c.replica.Lags(), Silences: c.replica.Silences(), NearMisses: l.NearMisses(),
	}
	if now >= c.next.count {
		s.Caches, c.next.count = c.replica.CacheStats(), now+countEvery
	}
	c.stats.Store(s)
}

// countEvery is how often the caches are counted. Each count visits all caches.
const countEvery = 1000 * lease.Instant(1)

// run is the core's loop. It returns nil when ctx ends, and identity.ErrRemoved once the member has
// been removed from the cluster.
func (c *core) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	go c.commitDelay.run()
	defer c.commitDelay.close()
	for {
		select {
		case <-ctx.Done():
			c.stop()
			return nil
		case <-c.inbox.wake:
			c.inbox.gather.wait()
		case <-timer.C:
		}
		wait, err := c.step()
		if err != nil {
			c.stop()
			return err
		}
		timer.Reset(wait)
	}
}

// step performs one round of work. It returns how long the core can sleep, or an error if this
// member must stop, such as identity.ErrRemoved. Package shell determines the order of actions.
func (c *core) step() (time.Duration, error) {
	for {
		switch do := c.shell.Next(); do {
		case shell.End:
			return 0, c.end()
		case shell.Sleep:
			return time.Duration(c.shell.Wait) * time.Millisecond, nil
		default:
			c.do(do)
		}
	}
}

// do performs one action of the shell.
func (c *core) do(do shell.Do) {
	s := c.shell
	switch do {
	case shell.TakeMail:
		if s.Mail = c.inbox.take(s.Mail); s.Mail.DelayOver {
			c.commitDelay.fired()
		}
		c.permit(&s.Mail)
	case shell.ReadClock:
		s.Read(c.clock.read())
		c.clock.start.Store(int64(s.Epoch()))
	case shell.Advance:
		c.metrics.Jumps.Inc()
		c.log.Warn("the clock jumped or this process was paused: every lease restarts with "+
			"its full TTL", "clock-jumped", s.Jumped, "stalled", s.Stalled)
	case shell.HeartbeatDue:
		c.checkPeriodically()
	case shell.Feed:
		c.refuse()
	case shell.Work:
		begin := time.Now()
		s.Work()
		took := time.Since(begin)
		if s.Out.Applied {
			c.metrics.Apply.Observe(took.Seconds())
		}
		c.tracer.Worked(begin, took, s.Now)
	case shell.Send:
		c.peers.send(s.Out.Send)
	case shell.Ask:
		for _, member := range s.Out.Ask {
			c.peers.Ask(member)
		}
	case shell.Save:
		if a, ok := s.Arrived.(*arrival); ok {
			c.writer.expect(a) // must precede the message that refers to it
		}
		c.tracer.Appending(s.Out.Append)
		c.writer.put(s.Out.Append)
	case shell.Show:
		c.applied(&s.Out)
	case shell.Follow:
		c.follow(&s.Before, s.Status)
	case shell.Publish:
		api.Publish(c.hub, s.Out.Changes)
	case shell.Answer:
		c.answer(&s.Out)
	case shell.DeliverCaches:
		s.DeliverCaches()
	case shell.Delay:
		c.commitDelay.follow(s.Delayed, c.writer.typical())
	case shell.Shrink:
		c.view.Store(s.View)
	}
}

// end is the core's last action. It drops a received snapshot that has not been saved.
func (c *core) end() error {
	if c.shell.Err == nil {
		return identity.ErrRemoved
	}
	if a, ok := c.shell.Arrived.(*arrival); ok {
		a.refuse(errStopped)
	}
	if errors.Is(c.shell.Err, replica.ErrDamaged) {
		return c.damaged(c.shell.Err)
	}
	if err := identity.OtherRelease(c.shell.Err, c.dir); errors.Is(err, ErrTooOld) ||
		errors.Is(err, ErrUnsupportedVersion) {
		return err
	}
	if c.shell.Out.Failed != nil {
		return fmt.Errorf("%w, and other members on this release cannot either; the data in %s "+
			"is unchanged: %w",
			identity.ErrUnapplied, c.dir, c.shell.Err)
	}
	return identity.RolledBack(c.shell.Err, c.dir)
}

// checkPeriodically performs periodic checks, once per heartbeat.
func (c *core) checkPeriodically() {
	now := c.shell.Now
	stuck, full := c.writer.stuck(c.election), c.writer.full.Load()
	if c.shell.Beat(shell.Environment{
		MayVote: c.peers.MayVote(), DiskStuck: stuck || full,
	}) {
		c.log.Warn("cannot write log entries to the disk: handing over leadership",
			"stuck", stuck, "full", full)
	}
	c.snap.relieve(c, full)
	c.snap.follow(c)
	if !full { // on a full disk, relieve writes the snapshots, and keeps less of the log
		c.snap.rest(c)
	}
	c.logLeaderless()
	c.peers.connected(now)
	c.publishStats(now)
}

// refuse reports inputs that the replica has rejected.
func (c *core) refuse() {
	for _, m := range c.shell.Refused {
		if from := fmt.Sprintf("%x", m.From); errors.Is(m.Err, replica.ErrMessage) &&
			c.shell.Now >= c.next.malformed {
			c.next.malformed = c.shell.Now + countEvery
			c.log.Warn("dropped an invalid message; its sender has a bug or is "+
				"impersonated", "from", from, "error", m.Err)
		} else {
			c.log.Debug("refused a message", "from", from, "error", m.Err)
		}
	}
	for _, d := range c.shell.Declined {
		a, why := d.Owner.(*arrival), cmp.Or(d.Err, errNotTaken)
		c.peers.wg.Go(func() { a.refuse(why) })
	}
}

// answer completes all finished requests.
func (c *core) answer(out *replica.Output) {
	c.metrics.Step(out)
	c.logRenewals(out)
	c.logSilent(out)
	if out.SlowNews {
		c.news.setSlow(c.replica.SlowCaches(), c.clock.now())
	}
	now := c.tracer.Done()
	for _, p := range out.Proposals {
		p.Owner.(waiter).answered(now)
	}
	for _, q := range out.Reads {
		q.Owner.(waiter).answered(now)
	}
	for _, r := range out.Together {
		r.Owner.(native.RenewedAll).RenewedTogether()
	}
	for _, r := range out.Groups {
		r.Owner.(native.RenewedAll).RenewedGroups()
	}
	for i := range out.Renewals {
		renewed(&out.Renewals[i])
	}
	c.tracer.Led(out.Forwarded)
}

// renewed reports the outcome of a renewal.
func renewed(n *replica.Renewal) {
	switch to := n.Owner.(type) {
	case api.Renewed:
		to.Renewed(n.ID, n.TTL, n.Err)
	case native.RenewedAll:
		to.RenewedOne(n.Place, n.TTL, n.Err)
	}
}

// applied publishes the new state for readers.
func (c *core) applied(out *replica.Output) {
	old, v := c.view.Load(), c.shell.View
	c.view.Store(v)
	if !slices.EqualFunc(old.Members, v.Members, sameAddress) ||
		len(old.Removed) != len(v.Removed) {
		c.peers.update(v.Members)
	}
	if c.began.current {
		warnOfVoters(c.log, old.Members, v.Members)
	}
	c.logVersion(old, v)
	if out.Restored {
		c.hub.Restore(v.KV.Revision())
		c.snap.Restored(v.Index, c.disk.Usage().SnapshotBytes)
		c.snap.newest(v.Version.Number, c.disk.Usage().SnapshotIndex)
	}
	if v.Access != old.Access {
		c.Announce()
	}
	if out.Hash != nil {
		c.hash(out.Hash)
	}
	c.logDamage(old, v)
	if v.LeaseNews(old) {
		c.news.signal()
		c.logLeases(old, v)
	}
	c.snap.applied(c)
}

func sameAddress(a, b fsm.Member) bool {
	return a.ID == b.ID && a.Incarnation == b.Incarnation && slices.Equal(a.PeerURLs, b.PeerURLs)
}

// follow publishes and logs the replica's new status.
func (c *core) follow(old *replica.Status, s replica.Status) {
	c.status.put(&s)
	c.metrics.Status(old, &s)
	c.tracer.Follow(&s)
	c.logLeader(old, &s)
	c.logRole(old, &s)
}

// logLeaderless logs a warning if there has been no leader for longer than an election takes.
func (c *core) logLeaderless() {
	if at := c.next.leaderless; at != 0 && c.shell.Now >= at {
		c.next.leaderless = 0
		c.log.Warn("no leader: writes and renewals wait until one is elected")
	}
}

// logSilent logs members that seem to be unresponsive or cut off. On a follower, that member is the
// leader, which the follower is now trying to replace.
func (c *core) logSilent(out *replica.Output) {
	for _, s := range out.Silent {
		c.log.Warn("a member is unresponsive: it is connected but does not respond, or it is cut "+
			"off",
			"member", fmt.Sprintf("%x", s.Member), "for-ms", int64(s.Quiet), "limit-ms", int64(s.Limit))
	}
}

// logLeader logs the election or the loss of a leader.
func (c *core) logLeader(old, s *replica.Status) {
	switch {
	case s.Leader == old.Leader:
	case s.Leader == 0:
		c.next.leaderless = c.shell.Now + 2*lease.Instant(c.election.Milliseconds())
		c.log.Info("no leader", "term", s.Term,
			"before", fmt.Sprintf("%x", old.Leader))
	default:
		c.next.leaderless = 0
		m, _ := c.view.Load().Member(s.Leader)
		c.log.Info("a leader was elected", "leader", fmt.Sprintf("%x", s.Leader), "name", m.Name,
			"term", s.Term, "this-member", s.Leading)
	}
}

// image returns an immutable view of the applied state, including leases.
func (c *core) image(ctx context.Context) (*fsm.Image, error) {
	got := make(chan *fsm.Image, 1)
	if !c.inbox.task(func() { got <- c.replica.Machine().Image() }) {
		return nil, api.ErrStopped
	}
	select {
	case im := <-got:
		return im, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.stopped:
		return nil, api.ErrStopped
	}
}

// stop rejects all requests in the inbox. It does not wake up callers whose commands are in the
// log. node.ended does that.
func (c *core) stop() {
	m := c.inbox.close()
	for _, a := range m.Arrivals {
		a.Owner.(*arrival).refuse(errStopped)
	}
	for _, n := range m.Renewals {
		n.Err = replica.ErrLeaderChanged
		renewed(&n)
	}
	for _, r := range m.Together {
		for i := range r.IDs {
			r.Owner.(native.RenewedAll).RenewedOne(i, 0, replica.ErrLeaderChanged)
		}
		if len(r.Renew)+len(r.Leave) > 0 {
			r.Owner.(native.RenewedAll).RenewedGroups()
		}
	}
}
