package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/audit"
	"leasehold.dev/internal/backoff"
	"leasehold.dev/internal/cause"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/login"
	"leasehold.dev/internal/member/authn"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/member/metrics"
	"leasehold.dev/internal/member/timing"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// Raft is ticked once per heartbeat. Entries and expiries are limited in size, so that applying one
// takes about a millisecond and delays nothing for long.
const (
	maxBatchBytes  = 1 << 20
	maxExpireBatch = 512
)

const (
	// stableAfter is how long each voter must have been connected before a member is added. It is
	// the same as in etcd.
	stableAfter = 5000 * lease.TTL(1)
	// maxLearnerLag is how many entries a learner can be behind when it is promoted.
	maxLearnerLag = 1000
)

// Server is one member. New creates it, and Run runs it once.
type Server struct {
	cfg   Config
	core  *core
	node  *node
	peers *peers
	// entrance admits calls once the member can answer them.
	entrance *entrance
	peerTLS  *tls.Config // for the peer listeners; nil if there is none
	limits   limits
	panics   *listen.Panics
	logins   *authn.Logins
	audit    *audit.Recorder // nil if there is no audit log
	ready    chan struct{}
	// expelled ends when other members report that this one must stop. Its cause is the reason.
	expelled context.Context
	once     sync.Once
}

// New opens the data directory and loads the state. If the directory is empty, it founds a cluster.
// New fails if the configuration is invalid, another process is using the directory, or its data is
// damaged. The error includes a remedy, and is recorded in run.json in the directory. After New,
// call Run, or Close to release the directory.
func New(cfg Config) (*Server, error) {
	s, err := newServer(cfg)
	if err != nil {
		return nil, cfg.NotStarted(err)
	}
	return s, nil
}

func newServer(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	limits, err := newLimits(cfg.Limits.MembersOfProcess, cfg.Logger)
	if err != nil {
		return nil, err
	}
	accept, way, err := peerWay(cfg)
	if err != nil {
		return nil, err
	}
	b, err := identity.Open(cfg.identity(), way)
	if err != nil {
		return nil, err
	}
	panics := listen.NewPanics(cfg.Logger)
	expelled, expel := context.WithCancelCause(context.Background())
	c, err := newCore(cfg, b, peerSettings{way, b.Known, panics}, limits.memory, expel)
	if err != nil {
		return nil, errors.Join(err, b.Disk.Close())
	}
	s := &Server{
		cfg: cfg, core: c, peers: c.peers, peerTLS: accept, limits: limits, panics: panics,
		ready: make(chan struct{}), expelled: expelled,
	}
	if s.node, err = newNode(cfg, c, expelled); err == nil {
		s.logins, err = newLogins(cfg, s.node)
	}
	if err == nil {
		s.audit, err = newAudit(cfg, s.node)
	}
	if err != nil {
		return nil, errors.Join(err, s.release())
	}
	s.entrance = newEntrance(s.node)
	c.metrics.Registry.MustRegister(s.audit.Collectors()...)
	c.metrics.Register(s.measured())
	return s, nil
}

func newNode(cfg Config, c *core, expelled context.Context) (*node, error) {
	id, _ := c.disk.Identity()
	k, err := newKeeper(cfg, c, id)
	if err != nil {
		return nil, err
	}
	ended, end := context.WithCancel(expelled)
	return &node{
		core: c, cluster: id.Cluster, member: id.Member, keeper: k,
		limits: api.NewRateLimiter(
			func() *access.State { return c.View().Access }, cfg.Access.MetricsPrincipals,
		),
		short: make(chan struct{}, 1), expelled: expelled.Done(), ended: ended.Done(), end: end,
	}, nil
}

func newLogins(cfg Config, n *node) (*authn.Logins, error) {
	l, err := authn.New(authn.Config{
		MemberID: n.member,
		Tokens: login.Options{
			Token: cfg.Access.Token, TTL: cfg.Access.TokenTTL, Member: n.member,
		},
		Passwords: login.PasswordOptions{
			Cost: cfg.Access.BcryptCost, Least: cfg.Access.MinPassword,
			Failures: cfg.Access.MaxFailedLogins,
		},
		CommonNames:  cfg.ClientTLS.ClientCertAuth,
		BindingsFile: cfg.Access.BindingsFile,
		Certificates: cfg.ClientTLS.TrustedCAFile != "" || cfg.ClientTLS.ClientCertAuth,
		Dial:         cfg.host.Dialer(), Logger: cfg.Logger, Metrics: n.metrics.Registry,
	}, n, n.Changes)
	if err != nil {
		return l, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return l, nil
}

// newAudit returns the recorder of the audit log, or nil if there is no audit log.
func newAudit(cfg Config, n *node) (*audit.Recorder, error) {
	a, err := audit.NewRecorder(audit.Options(cfg.Access.Audit), n, cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return a, nil
}

// newCore returns the core of a member with all its parts. The argument memory is the member's
// share of the machine's memory. The function expel stops the member permanently.
func newCore(
	cfg Config, b identity.Booted, o peerSettings, memory uint64, expel func(error),
) (*core, error) {
	disk, machine := b.Disk, b.Machine
	clock, err := newClock(cfg.host)
	if err != nil {
		return nil, err
	}
	id, _ := disk.Identity()
	tracer := timing.New(timing.Config{
		Provider: cfg.TracerProvider, SlowAfter: cfg.GRPC.WarnAfter, Logger: cfg.Logger,
	})
	measured := metrics.New(cfg.Logger, cfg.HTTP.Collectors...)
	box := newInbox()
	w := &writer{
		disk: disk, log: cfg.Logger, metrics: measured, tracer: tracer, wake: make(chan struct{}, 1),
		persist: box.persisted,
	}
	r, err := newReplica(cfg, id.Member, machine, w)
	if err != nil {
		return nil, err
	}
	logged, err := disk.LastIndex()
	if err != nil {
		return nil, err
	}
	// The log can extend beyond the commit index, so this also excludes entries that other members
	// are still appending.
	machine.CountAfter(logged)
	commitDelay, err := newCommitDelay(cfg.host, box.delayOver)
	if err != nil {
		return nil, err
	}
	snap := &snapshotter{
		disk: disk, log: cfg.Logger, metrics: measured, speaks: version.Spoken,
		Snapshots: shell.Snapshots{
			Count: cfg.Raft.SnapshotCount, Tail: cfg.Raft.SnapshotCatchUpEntries,
		},
	}
	snap.Restored(machine.Index(), disk.Usage().SnapshotBytes)
	snap.newest(machine.Version().Number, machine.Index())
	c := &core{
		replica: r, dir: cfg.DataDir, disk: disk,
		shell: shell.New(shell.Config{
			Replica: r, Start: clock.read(),
			Heartbeat: lease.TTL(cfg.Raft.Heartbeat.Milliseconds()),
			Election:  lease.TTL(cfg.Raft.ElectionTimeout.Milliseconds()),
		}),
		inbox: box, clock: clock, log: cfg.Logger, snap: snap, commitDelay: commitDelay,
		metrics: measured, tracer: tracer, writer: w,
		began:    startup{voters: r.ConfState().GetVoters(), logged: logged},
		election: cfg.Raft.ElectionTimeout, stopped: make(chan struct{}),
	}
	c.clock.start.Store(int64(c.shell.Epoch()))
	c.view.Store(machine.View())
	c.waiting = newWaiting(c.View, memory)
	c.status.put(new(r.Status()))
	c.stats.Store(&metrics.State{})
	c.peers = newPeers(cfg, id, o, coreParts{
		inbox: box, replica: r, snap: snap, disk: disk, view: c.View,
		metrics: measured, tracer: tracer,
	}, expel)
	return c, nil
}

func newReplica(
	cfg Config, member uint64, machine *fsm.Machine, w *writer,
) (*replica.Replica, error) {
	return replica.New(replica.Config{
		ID: member, FirstSeq: rand.Uint64() >> 1, Log: w.disk, Machine: machine,
		HeartbeatTicks: 1,
		ElectionTicks:  int(cfg.Raft.ElectionTimeout / cfg.Raft.Heartbeat),
		NoPreVote:      !cfg.Raft.PreVote,
		Silence:        cfg.Raft.silence(),
		MaxBatch:       maxBatchBytes, MaxExpire: maxExpireBatch, CommitDelay: true,
		RefuseForwarded: w.refuses,
		Membership: replica.Membership{
			Strict: cfg.Cluster.StrictReconfigCheck, Stable: stableAfter,
			MaxLearners: cfg.Cluster.MaxLearners, MaxLag: maxLearnerLag,
		},
		CompareTicks: cfg.Raft.compareTicks(), Logger: raftLogger{cfg.Logger},
	})
}

// Run serves until ctx ends, and then stops gracefully: it accepts no new requests, completes the
// requests in progress or answers them with an error, and syncs the log. It then returns nil. Only
// the first call has an effect.
func (s *Server) Run(ctx context.Context) error {
	err := errors.New("server: Run was already called")
	s.once.Do(func() { err = s.run(ctx) })
	return err
}

// Ready returns a channel that is closed when the member begins to serve.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Learner reports whether the member has no vote.
func (s *Server) Learner() bool { return s.node.View().Learner(s.node.member) }

// Reload rereads Access.BindingsFile immediately. The member also rereads the file whenever it
// changes.
func (s *Server) Reload() { s.logins.Bindings().Reload() }

// Close releases the data directory of a Server that has never been run.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() { err = s.release() })
	return err
}

// release closes everything that New has opened.
func (s *Server) release() error {
	s.peers.close()
	s.logins.Bindings().Close()
	s.core.commitDelay.close()
	return s.core.disk.Close()
}

// run starts the member's goroutines from the inside out, and stops them from the outside in. They
// are listed in docs/architecture.md.
func (s *Server) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer context.AfterFunc(s.expelled, func() { fail(context.Cause(s.expelled)) })()
	s.warnOfAddresses()
	noteEnd := s.noteRun()
	s.peers.update(s.node.View().Members)
	defer s.peers.AwaitFounders(s.cfg.Cluster.FoundersWait)()
	defer s.peers.ResetClaim()()
	g := group{log: s.cfg.Logger}
	coreCtx, stopCore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCore()
	writerCtx, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()

	g.start(fail, func() error { return s.core.writer.run(writerCtx) })
	g.start(fail, func() error {
		defer s.node.end()
		defer close(s.core.stopped)
		return s.core.run(coreCtx)
	})
	g.start(fail, func() error { _ = s.core.hub.Run(coreCtx); return nil })
	g.start(fail, func() error { s.core.news.run(coreCtx); return nil })
	peerMux := listen.NewMux(listen.MuxOptions{Logger: s.cfg.Logger})
	err := s.listenPeers(ctx, peerMux, &g, fail)
	if err == nil {
		err = s.lead()
	}
	if err == nil {
		err = s.serve(ctx, fail)
	}
	s.handOver(ctx)

	stopCore()
	<-s.core.stopped
	_ = peerMux.Close()
	s.peers.close()
	s.core.snap.wg.Wait()
	stopWriter()
	s.logins.Bindings().Close()
	g.wg.Wait()
	s.core.tracer.Close() // by now, the last call and the core have ended
	s.core.writer.abandon()
	why := context.Cause(ctx)
	if errors.Is(why, identity.ErrRemoved) {
		s.cfg.Logger.Warn("this member was removed from the cluster and will not serve again; "+
			"its data directory can be deleted", "data-dir", s.cfg.DataDir,
			"cause", cause.Removed)
	}
	if err == nil && !errors.Is(why, context.Canceled) {
		err = why
	}
	noteEnd(err) // before another process can use the directory
	if errors.Is(err, identity.ErrRemoved) {
		err = nil
	}
	return withCause(errors.Join(err, s.core.disk.Close()))
}

// lead makes a sole voter elect itself immediately instead of after a timeout. If the core stops in
// the meantime, lead returns nil, because the core has already reported why.
func (s *Server) lead() error {
	voters := s.core.began.voters
	if len(voters) != 1 || voters[0] != s.node.member {
		return nil
	}
	failed := make(chan error, 1)
	s.core.inbox.task(func() { failed <- s.core.replica.Campaign() })
	select {
	case err := <-failed:
		return err
	case <-s.core.stopped:
		return nil
	}
}

// handOver transfers leadership before this member stops, so that the other members do not have to
// detect that it is gone. It first replicates the remaining time of silent leases, because the
// other members might be about to stop as well.
func (s *Server) handOver(ctx context.Context) {
	if errors.Is(context.Cause(ctx), identity.ErrRemoved) || !s.node.status.Load().Leading {
		return
	}
	if errors.Is(context.Cause(ctx), context.Canceled) { // otherwise, the log might have failed
		s.checkpointAll(context.WithoutCancel(ctx))
	}
	limit := maxOffers * s.cfg.Raft.ElectionTimeout
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for s.offerLeadership(wait) && backoff.Sleep(wait, time.Millisecond) {
	}
}

// maxOffers is how many members a stopping leader offers its leadership to in turn. A member with a
// full disk does not accept it. Raft drops an offer after an election timeout.
const maxOffers = 3

// offerLeadership offers leadership to another member. It reports whether this member was still the
// leader and made the offer.
func (s *Server) offerLeadership(ctx context.Context) bool {
	yields := make(chan bool, 1)
	if !s.core.inbox.task(func() { yields <- s.core.replica.Yield() }) {
		return false
	}
	select {
	case ok := <-yields:
		return ok
	case <-ctx.Done():
	case <-s.core.stopped:
	}
	return false
}

// checkpointAll waits until the remaining time of silent leases has been replicated. If that takes
// too long, those leases get slightly more time after a restart of all members.
func (s *Server) checkpointAll(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, s.cfg.Raft.ElectionTimeout)
	defer cancel()
	done := make(chan struct{})
	if !s.core.inbox.task(func() { s.core.replica.CheckpointAll(func() { close(done) }) }) {
		return
	}
	select {
	case <-done:
	case <-wait.Done():
	case <-s.core.stopped:
	}
}

// group runs goroutines that the member depends on. If one of them fails, the member stops.
type group struct {
	wg  sync.WaitGroup
	log *slog.Logger
}

func (g *group) start(fail context.CancelCauseFunc, f func() error) {
	g.wg.Go(func() {
		if err := flushing(g.log, f); err != nil {
			fail(err)
		}
	})
}

// flushing calls f. If f panics, which ends the process, flushing flushes the log first.
func flushing(log *slog.Logger, f func() error) error {
	panicking := true
	defer func() {
		if h, ok := log.Handler().(interface{ Flush() }); ok && panicking {
			h.Flush()
		}
	}()
	err := f()
	panicking = false
	return err
}

// publishFirst waits until this member can serve. A new member must first publish its identity.
// After a while, a restarted member starts to serve what it can, even without a leader, so that an
// operator can ask it why there is none.
func (s *Server) publishFirst(ctx context.Context) error {
	if !s.published() {
		late := time.AfterFunc(2*s.cfg.Raft.ElectionTimeout, s.entrance.refuse)
		defer late.Stop()
		return s.publish(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, 2*s.cfg.Raft.ElectionTimeout)
	defer cancel()
	if err := s.node.Confirm(wait); err == nil || ctx.Err() != nil {
		return nil
	}
	s.cfg.Logger.Warn("no leader yet: serving only requests that do not need a leader")
	return nil
}

// publishCaughtUp publishes what has changed, once this member has caught up. It has to wait
// because the state that the member started from might be older than its last publication.
func (s *Server) publishCaughtUp(ctx context.Context) error {
	for s.node.Confirm(ctx) != nil {
		if !backoff.Sleep(ctx, s.cfg.Raft.Heartbeat) {
			return nil
		}
	}
	if s.published() {
		return nil
	}
	return s.publish(ctx)
}

// comparePeerURLs logs a warning if other members reach this one at different URLs than configured.
// As in etcd, the URLs that count are the ones stored when this member founded the cluster, was
// added, or was restored.
func (s *Server) comparePeerURLs() {
	self, ok := s.node.View().Member(s.node.member)
	given := slices.Sorted(slices.Values(listen.URLTexts(s.cfg.URLs.AdvertisePeer)))
	if !ok || slices.Equal(slices.Sorted(slices.Values(self.PeerURLs)), given) {
		return
	}
	id := fmt.Sprintf("%x", s.node.member)
	s.cfg.Logger.Warn("the stored peer URLs of this member differ from the configured ones; other "+
		"members use only the stored ones", "member", id,
		"stored", self.PeerURLs, "given", given,
		"to-change", "leasehold member update "+id+" --peer-urls="+strings.Join(given, ","))
}

// published reports whether the cluster knows this member's current name, addresses, cluster
// versions and quota.
func (s *Server) published() bool {
	self, ok := s.node.View().Member(s.node.member)
	return ok && self.Name == s.cfg.Name && self.Incarnation == s.peers.Incarnation() &&
		self.Versions == version.Spoken && self.Quota == s.cfg.Limits.quota() &&
		slices.Equal(self.ClientURLs, listen.URLTexts(s.cfg.URLs.AdvertiseClient))
}

// publish replicates this member's name, addresses, cluster versions and quota.
func (s *Server) publish(ctx context.Context) error {
	self := &fsm.SetMember{Member: fsm.Member{
		ID: s.node.member, Name: s.cfg.Name, Incarnation: s.peers.Incarnation(),
		ClientURLs: listen.URLTexts(s.cfg.URLs.AdvertiseClient), Versions: version.Spoken,
		Quota: s.cfg.Limits.quota(),
	}}
	for {
		r, err := s.node.ProposeOwn(ctx, self)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && errors.Is(r.Err, fsm.ErrIncarnation):
			return identity.LostData(s.cfg.DataDir)
		case err == nil && errors.Is(r.Err, fsm.ErrVersion):
			return identity.UnsupportedVersion(r.Err, s.cfg.DataDir)
		case err == nil:
			return r.Err
		}
		level := slog.LevelWarn
		if errors.Is(err, replica.ErrLeaderChanged) {
			level = slog.LevelInfo // expected while a member joins
		}
		s.cfg.Logger.Log(ctx, level, "waiting for a leader", "error", err)
		if !backoff.Sleep(ctx, 10*time.Millisecond) {
			return nil
		}
	}
}

// Endpoint returns the URL at which clients on this machine can reach the member. It is for
// programs that embed the member.
func (s *Server) Endpoint() url.URL { return s.cfg.URLs.AdvertiseClient[0] }
