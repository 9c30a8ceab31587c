package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leasehold.dev/internal/load"
)

const (
	// userEvery is the interval between calls of the Go client after a kill.
	userEvery = 20 * time.Millisecond
	// userLimit is a typical call timeout in programs.
	userLimit = 15 * time.Second
	// beforeKill is how long the callers have been active when the leader dies.
	beforeKill = 300 * time.Millisecond
	// hangs is the minimum time for which a leader hangs. It is longer than any election, so every
	// client observes an outage, and members cannot adapt to it as they do to short pauses.
	hangs = 3 * time.Second
)

// An outage is a fault injected into a leader. Some in-flight calls return only after the outage
// has ended. agree waits until the members agree again, which requires that all calls have stopped.
type outage struct {
	name  string
	begin func(*member) error
	end   func(m *member) error // ends the outage after a while
	lasts time.Duration
	agree func(context.Context, *Server, *member) error
}

var (
	killed = outage{
		"kills", (*member).kill, func(*member) error { return nil }, 0,
		func(ctx context.Context, s *Server, m *member) error { return s.revive(ctx, m) },
	}
	hung = outage{
		"hangs", (*member).hang, (*member).resume, hangs,
		func(ctx context.Context, s *Server, _ *member) error { return s.caughtUp(ctx) },
	}
)

// failover is a series of outages of one kind, on a cluster whose leader fails repeatedly.
type failover struct {
	env *Env
	outage
	user *clientv3.Client // client of a program that only makes calls
	// lease is the lease renewed by probes and callers. It does not matter whether it survives.
	lease int64

	// The behavior of the service: the time until the first acknowledgment through the faster
	// surviving member, and through the slower one.
	write, renew, lastWrite, lastRenew sample
	// What a program with the Go client observes.
	userWrite, userRenew sample
	inFlight             sample // durations of in-flight calls
}

// runFailover kills the leader Params.Kills times, and then pauses its process as many times.
func runFailover(ctx context.Context, e *Env) (Result, error) {
	var r Result
	for _, o := range []outage{killed, hung} {
		list, err := e.outages(ctx, o)
		if err != nil {
			return Result{}, err
		}
		for _, m := range list {
			m.Name = o.name + ", " + m.Name
			r.More = append(r.More, m)
		}
	}
	return r, nil
}

// outages causes one kind of outage Params.Kills times.
func (e *Env) outages(ctx context.Context, o outage) ([]Metric, error) {
	user, err := e.Server.dialUser()
	if err != nil {
		return nil, err
	}
	defer user.Close()
	holder, err := e.Server.dialUser()
	if err != nil {
		return nil, err
	}
	defer holder.Close()
	f := &failover{env: e, outage: o, user: user}
	if f.lease, err = e.grant(ctx, 0, longTTL); err != nil {
		return nil, err
	}
	k, err := keepAlive(ctx, holder)
	if err != nil {
		return nil, err
	}
	for i := range e.Kills {
		if err := f.runOutage(ctx); err != nil {
			return nil, fmt.Errorf("%s: %d: %w", o.name, i+1, err)
		}
	}
	lost, err := k.finish(ctx)
	if err != nil {
		return nil, err
	}
	return append(f.metrics(),
		Metric{"kept-alive leases", float64(len(k.leases)), "leases"},
		Metric{"kept-alive leases lost", float64(lost), "leases"},
		Metric{"longest wait between their renewals (TTL 5 s)", load.Millis(k.longest()), "ms"},
	), nil
}

// dialUser creates a client as a program would, with all endpoints and the default settings.
func (s *Server) dialUser() (*clientv3.Client, error) {
	var endpoints []string
	for _, m := range s.members {
		endpoints = append(endpoints, m.endpoint)
	}
	return clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
}

// runOutage causes one outage of the leader, measures it, and restores the cluster.
func (f *failover) runOutage(ctx context.Context) error {
	s := f.env.Server
	r, err := s.roles(ctx)
	if err != nil {
		return err
	}
	if err := f.userConnected(ctx); err != nil {
		return err
	}
	probes, hangUp, err := f.probes(ctx, r.followers)
	if err != nil {
		return err
	}
	defer hangUp()
	calls := f.startCallers(ctx)
	select {
	case <-time.After(beforeKill):
	case <-ctx.Done():
	}
	began := time.Now()
	if err := f.begin(r.leader); err != nil {
		return err
	}
	calls.mark(began)
	took, err := firsts(ctx, probes, began, r.term)
	select {
	case <-time.After(f.lasts - time.Since(began)):
	case <-ctx.Done():
	}
	err = errors.Join(err, f.end(r.leader))
	f.inFlight = append(f.inFlight, calls.stop()...)
	if err != nil {
		return err
	}
	n := len(r.followers)
	f.write = append(f.write, slices.Min(took[:n]))
	f.lastWrite = append(f.lastWrite, slices.Max(took[:n]))
	f.renew = append(f.renew, slices.Min(took[n:2*n]))
	f.lastRenew = append(f.lastRenew, slices.Max(took[n:2*n]))
	f.userWrite = append(f.userWrite, took[2*n])
	f.userRenew = append(f.userRenew, took[2*n+1])
	return f.agree(ctx, s, r.leader)
}

// probes creates a write probe for each member, then a renewal probe for each, and finally one of
// each kind for the Go client. The connections are in use before anything fails.
func (f *failover) probes(
	ctx context.Context, members []*member,
) (list []probe, hangUp func(), err error) {
	var clients []*load.Client
	hangUp = func() {
		for _, c := range clients {
			_ = c.Close() // no longer used
		}
	}
	for _, m := range members {
		c, err := dial([]string{m.endpoint}, 1)
		if err != nil {
			hangUp()
			return nil, nil, err
		}
		clients = append(clients, c)
		list = append(list, writeProbe(c))
	}
	for _, c := range clients {
		list = append(list, renewProbe(c, f.lease))
	}
	list = append(list, probe{f.userPut, userEvery, userLimit},
		probe{f.userKeepAlive, userEvery, userLimit})
	if _, err := firsts(ctx, list, time.Now(), 0); err != nil {
		hangUp()
		return nil, nil, err
	}
	return list, hangUp, nil
}

// userConnected waits until the Go client, which alternates between its connections, has received
// answers from every member. The client returns to a restarted member after a second or more. If
// the next kill came before that, the result would depend on the time between kills.
func (f *failover) userConnected(ctx context.Context) error {
	seen := map[uint64]bool{}
	return poll(ctx, failoverLimit, func(ctx context.Context) error {
		r, err := f.user.Get(ctx, "user", clientv3.WithSerializable())
		if err != nil {
			return err
		}
		if seen[r.Header.GetMemberId()] = true; len(seen) < len(f.env.Server.members) {
			return fmt.Errorf("bench: the Go client has found %d members", len(seen))
		}
		return nil
	})
}

func (f *failover) userPut(ctx context.Context) (uint64, error) {
	r, err := f.user.Put(ctx, "user", "value")
	if err != nil {
		return 0, err
	}
	return r.Header.GetRaftTerm(), nil
}

func (f *failover) userKeepAlive(ctx context.Context) (uint64, error) {
	r, err := f.user.KeepAliveOnce(ctx, clientv3.LeaseID(f.lease))
	if err != nil {
		return 0, err
	}
	return r.GetRaftTerm(), nil
}

func (f *failover) metrics() []Metric {
	return slices.Concat(
		[]Metric{{"count", float64(len(f.write)), "outages"}},
		f.write.metrics("first write"),
		f.renew.metrics("first renewal"),
		f.lastWrite.metrics("first write through the last member"),
		f.lastRenew.metrics("first renewal through the last member"),
		f.userWrite.metrics("clientv3 first write"),
		f.userRenew.metrics("clientv3 first renewal"),
		[]Metric{
			{"clientv3 calls in flight", float64(len(f.inFlight)), "calls"},
			{"clientv3 call in flight max", load.Millis(f.inFlight.max()), "ms"},
		},
	)
}
