package server

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"time"

	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/watch"
)

// Raft is ticked once a heartbeat; entries and expiries are cut to sizes that
// take about a millisecond to apply, so that nobody waits long behind one.
const (
	maxBatchBytes  = 1 << 20
	maxExpireBatch = 512
)

// Server is one member. New makes it, Run runs it, once.
type Server struct {
	cfg     Config
	core    *core
	node    *node
	rpcs    *rpcMetrics
	ready   chan struct{}
	stopped chan struct{}
	once    sync.Once
}

// New opens the data directory, or founds a cluster in an empty one, and
// loads the state. It fails if the configuration is bad, if another process
// has the directory, or if what is in it is damaged; the error says what to
// do. Call Run, or Close to let go of the directory.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	disk, machine, err := boot(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, rpcs: new(rpcMetrics),
		ready: make(chan struct{}), stopped: make(chan struct{}),
	}
	if s.core, err = newCore(cfg, disk, machine); err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	id, _ := disk.Identity()
	s.node = &node{
		core: s.core, cluster: id.Cluster, member: id.Member,
		quota: cfg.Limits.QuotaBackendBytes, stopped: s.stopped,
	}
	s.core.metrics.watchState(s.node)
	s.core.metrics.watchEtcdState(s.node)
	s.core.metrics.registry.MustRegister(s.rpcs)
	return s, nil
}

func newCore(cfg Config, disk *storage.Disk, machine *fsm.Machine) (*core, error) {
	id, _ := disk.Identity()
	r, err := replica.New(replica.Config{
		ID: id.Member, Log: disk, Machine: machine,
		HeartbeatTicks: 1,
		ElectionTicks:  int(cfg.Raft.ElectionTimeout / cfg.Raft.Heartbeat),
		MaxBatch:       maxBatchBytes, MaxExpire: maxExpireBatch,
		Logger: raftLogger{cfg.Logger},
	})
	if err != nil {
		return nil, err
	}
	c := &core{
		replica: r, machine: machine, disk: disk,
		inbox: newInbox(), clock: newClock(), log: cfg.Logger, metrics: newMetrics(),
		tick: cfg.Raft.Heartbeat,
	}
	c.view.Store(machine.View())
	c.status.Store(new(r.Status()))
	c.stats.Store(&stateStats{})
	c.hub = watch.New(func() watch.History[*etcd.Event] {
		return etcd.NewHistory(c.view.Load().KV)
	}, watch.Options{})
	c.writer = &writer{
		disk: disk, log: cfg.Logger, metrics: c.metrics,
		persist: c.persisted, wake: make(chan struct{}, 1),
	}
	c.snap = &snapshotter{
		disk: disk, log: cfg.Logger, metrics: c.metrics,
		count: cfg.Raft.SnapshotCount, tail: cfg.Raft.SnapshotCatchUpEntries,
		last: machine.Index(), looked: machine.Index(),
	}
	return c, nil
}

// Run serves until ctx ends, and then stops gracefully: no new requests, those
// under way are finished or told, the log is synced. It returns nil after a
// stop that ctx asked for. Only the first call does anything.
func (s *Server) Run(ctx context.Context) error {
	err := errors.New("server: Run was called before")
	s.once.Do(func() { err = s.run(ctx) })
	return err
}

// Ready returns a channel that is closed when the member begins to serve.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Close lets go of the data directory of a Server that was never run.
func (s *Server) Close() error {
	var err error
	s.once.Do(func() { err = s.core.disk.Close() })
	return err
}

// run starts the member's goroutines from the inside out, and stops them from
// the outside in. docs/architecture.md lists them.
func (s *Server) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var g group
	coreCtx, stopCore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCore()
	writerCtx, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()

	g.start(fail, func() error { return s.core.writer.run(writerCtx) })
	g.start(fail, func() error { defer close(s.stopped); return s.core.run(coreCtx) })
	g.start(fail, func() error { _ = s.core.hub.Run(coreCtx); return nil })
	if err := s.lead(); err != nil {
		fail(err)
	}
	err := s.serve(ctx, fail)

	stopCore()
	<-s.stopped
	s.core.snap.wg.Wait()
	stopWriter()
	g.wg.Wait()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return errors.Join(err, s.core.disk.Close())
}

// lead makes a sole voter elect itself at once instead of after a timeout.
func (s *Server) lead() error {
	voters := s.core.replica.ConfState().GetVoters()
	if len(voters) != 1 || voters[0] != s.node.member {
		return nil
	}
	failed := make(chan error, 1)
	s.core.inbox.put(func(m *mail) {
		m.tasks = append(m.tasks, func() { failed <- s.core.replica.Campaign() })
	})
	return <-failed
}

// group runs goroutines that the member cannot do without: when one fails,
// the member stops.
type group struct{ wg sync.WaitGroup }

func (g *group) start(fail context.CancelCauseFunc, f func() error) {
	g.wg.Go(func() {
		if err := f(); err != nil {
			fail(err)
		}
	})
}

// publish replicates this member's name and addresses, which may have changed
// since the last start.
func (s *Server) publish(ctx context.Context) error {
	want := fsm.Member{
		ID: s.node.member, Name: s.cfg.Name,
		ClientURLs: urlStrings(s.cfg.URLs.AdvertiseClient),
	}
	for {
		if err := s.node.Confirm(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			s.cfg.Logger.Debug("not ready yet", "error", err)
			if !pause(ctx, 10*time.Millisecond) {
				return nil
			}
			continue
		}
		for _, m := range s.node.View().Members {
			if m.ID == want.ID {
				want.PeerURLs, want.Learner = m.PeerURLs, m.Learner
			}
		}
		r, err := s.node.propose(ctx, &fsm.SetMember{Member: want})
		if err == nil {
			return r.Err
		}
	}
}

// pause waits for d, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Endpoint returns the URL under which clients on this machine reach the
// member, for programs that embed it.
func (s *Server) Endpoint() url.URL { return s.cfg.URLs.AdvertiseClient[0] }
