package compare

import (
	"context"
	"fmt"
	"slices"
	"time"

	"leasehold.dev/internal/load"
)

// longTTL is the TTL, in seconds, of leases that must not expire during a run.
const longTTL = 36000

// A Workload is one type of load.
type Workload struct {
	Name string
	Doc  string
	// Ceiling is set if a server that stores nothing can run it.
	Ceiling bool
	// Once marks long workloads that run for one round by default.
	Once bool
	// Cluster marks workloads that need more than one member. They report a sheet of figures
	// instead of a rate.
	Cluster bool
	// Sheet marks other workloads that report a sheet of figures.
	Sheet bool
	// Through lists, in order, the member selections through which the workload is measured. If it
	// is empty, all members are used.
	Through []Through
	// Sessions is how many of the server's own clients the workload opens. If it is 0, the workload
	// uses etcd's API over plain connections.
	Sessions int
	// Granting marks workloads that need leases.
	Granting bool
	// Profiled marks workloads that read the server's memory usage from its debug pages.
	Profiled bool
	// Relays marks workloads that need relays, which only leasehold has.
	Relays bool

	run func(context.Context, *Env) (Result, error)
}

// Params holds the parameters of workloads.
type Params struct {
	// Duration is the length of the measured part of an open-ended workload.
	Duration time.Duration
	// Leases is the number of leases in the workloads with many leases.
	Leases int
	// Conns is the number of connections of the load generator.
	Conns int
	// DrainCap limits how long to wait for leases to end.
	DrainCap time.Duration
	// Members is the number of members of a server.
	Members int
	// Keys attaches a key to each lease in the memory workload.
	Keys bool
	// Kills is how many times the failover workload kills the leader. It hangs the leader as often.
	Kills int
	// IdleSessions is the number of sessions in the workloads with idle sessions. TLS makes them use
	// TLS if they connect to the member.
	IdleSessions int
	TLS          bool
	// Relays and TTL are used by the workload with many sessions. Relays is the number of relays
	// between the sessions and the member, and TTL is the TTL of the sessions' leases.
	Relays int
	TTL    time.Duration
}

// An Env is the environment of a workload: one server and connections to it.
type Env struct {
	Params
	Server *Server
	// Client uses etcd's API, if the server supports it.
	Client *load.Client
	// Sessions holds the sessions required by the workload.
	Sessions []Session
}

// A Result holds the measurements of one round of a workload.
type Result struct {
	// Rate is the number of operations per second.
	Rate float64 `json:"rate"`
	// P50 and P99 are latencies of single operations, in milliseconds.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	// CPU is the server's CPU time per operation, in microseconds.
	CPU float64 `json:"cpu_us"`
	// RSS is the server's resident memory at the end, in MiB. For a cluster, RSS and CPU are totals
	// over all members.
	RSS float64 `json:"rss_mib"`
	// Terms is the number of terms that began during the round. If it is 0, the leader did not
	// change.
	Terms uint64 `json:"terms,omitempty"`
	// More holds figures that only this workload measures, in a fixed order.
	More []Metric `json:"more,omitempty"`
}

// A Metric is a named figure of a workload, with its unit.
type Metric struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// Workloads returns all workloads in the order of a full run.
func Workloads() []Workload {
	list := []Workload{
		unary("grant", grantOp),
		unary("put", putOp),
		unary("get-linearizable", getOp),
		{
			Name: "keepalive/8", Ceiling: true, run: runKeepAlive,
			Through: []Through{ThroughLeader, ThroughFollowers},
			Doc:     "keep-alive of 100,000 leases over 8 streams, 64 in flight on each",
		},
		{
			Name: "handover/16", run: runHandover,
			Doc: "one lock, 16 waiters; latency from unlock sent to the next holder's answer",
		},
		{
			Name: "drain/20000", run: runDrain,
			Doc: "20,000 leases with a key end together; latency is lateness",
		},
		{
			Name: "memory", run: runMillion, Once: true,
			Doc: "resident memory of very many leases (-leases, -keys), then kill -9 and restart",
		},
	}
	list = append(list, sessionWorkloads()...)
	list = append(list, cacheWorkload())
	list = append(list, idleWorkloads()...)
	return append(list, clusterWorkloads()...)
}

// clusterWorkloads returns the workloads in which the leader changes.
func clusterWorkloads() []Workload {
	return []Workload{
		{
			Name: "failover", run: runFailover, Once: true, Cluster: true,
			Doc: "kill -9 of the leader (-kills times) to the first acknowledged write and renewal; " +
				"then the same with SIGSTOP for three seconds each time",
		},
		{
			Name: "deadholder", run: runDeadHolder, Once: true, Cluster: true,
			Doc: "when leases of a silent holder end while the leader is killed, or changes 5 times",
		},
	}
}

// meets reports whether servers of target t, with the given number of members, support everything
// that w requires.
func (w Workload) meets(t Target, members int) bool {
	switch {
	case t.Ceiling && !w.Ceiling, w.Sessions > 0 && t.Open == nil,
		w.Relays && t.Name != "leasehold":
		return false
	case t.Foreign != nil:
		return w.Sessions > 0 && !w.Granting && members == 1
	default:
		return true
	}
}

// Run starts a fresh server of target t, runs w against it through the selected members, and stops
// the server.
func (w Workload) Run(ctx context.Context, t Target, p Params, by Through) (r Result, err error) {
	if w.Profiled {
		t.Args = append(slices.Clone(t.Args), "--enable-pprof")
	}
	t.secure = p.TLS
	s, err := t.Start(ctx, p.Members)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if stopErr := s.Stop(); err == nil {
			err = stopErr
		}
	}()
	endpoints, err := s.endpoints(ctx, by)
	if err != nil {
		return Result{}, err
	}
	c, err := dial(endpoints, p.Conns, s.tokens...)
	if err != nil {
		return Result{}, err
	}
	defer c.Close()
	before, err := s.term(ctx)
	if err != nil {
		return Result{}, err
	}
	sessions, err := openSessions(t, endpoints, w.Sessions)
	if err != nil {
		return Result{}, err
	}
	defer closeSessions(sessions)
	r, err = w.run(ctx, &Env{Params: p, Server: s, Client: c, Sessions: sessions})
	if err != nil {
		return Result{}, fmt.Errorf("%s on %s: %w", w.Name, t.Name, err)
	}
	after, err := s.term(ctx)
	if err != nil {
		return Result{}, err
	}
	u, err := s.Usage()
	if err != nil {
		return Result{}, err
	}
	r.RSS = float64(u.RSS) / (1 << 20)
	r.Terms = after - before
	return r, nil
}
