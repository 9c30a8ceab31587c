package server

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// metrics are what a member measures of itself. Counters that the state
// machine keeps are read when they are scraped, so they cost nothing before.
type metrics struct {
	registry *prometheus.Registry
	sync     prometheus.Histogram
	apply    prometheus.Histogram
	snapshot prometheus.Histogram
	ttl      prometheus.Histogram
	lateness prometheus.Histogram
	renewals *prometheus.CounterVec
	caches   cacheMetrics
	peers    *peerMetrics

	leaders    atomic.Uint64 // stands under two names
	promotions prometheus.Counter
	installed  prometheus.Counter
	jumps      prometheus.Counter
	elections  prometheus.Counter
	silences   prometheus.Counter

	renewedOK, renewedGone, renewedFailed prometheus.Counter
}

func newMetrics(more ...prometheus.Collector) *metrics {
	hist := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "leasehold", Name: name, Help: help, Buckets: buckets,
		})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		peers:    newPeerMetrics(),
		sync: hist("log_sync_duration_seconds", "Time to make log entries durable.",
			prometheus.ExponentialBuckets(0.00002, 2, 18)),
		apply: hist("apply_duration_seconds", "Time the core takes to apply what was committed together.",
			prometheus.ExponentialBuckets(0.000002, 2, 20)),
		snapshot: hist("snapshot_duration_seconds", "Time to write a snapshot, in the background.",
			prometheus.ExponentialBuckets(0.001, 2, 18)),
		ttl: hist("lease_ttl_seconds", "TTLs of granted leases.",
			prometheus.ExponentialBuckets(0.1, 2, 24)),
		lateness: hist("lease_expiry_lateness_seconds",
			"Time from a lease's expiry to the moment its end was applied.",
			prometheus.ExponentialBuckets(0.0005, 2, 20)),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "leasehold", Name: "lease_renewals_total", Help: "Renewals by outcome.",
		}, []string{"outcome"}),
	}
	count := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "leasehold", Name: name, Help: help,
		})
		m.registry.MustRegister(c)
		return c
	}
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "leader_changes_total",
		Help: "Changes of the leader that this member saw.",
	}, func() float64 { return float64(m.leaders.Load()) }))
	m.promotions = count("promotions_total", "Times this member began to time leases.")
	m.installed = count("snapshots_installed_total", "Snapshots received from other members.")
	m.jumps = count("clock_jumps_total", "Times that this member did not run for a while, or its "+
		"clock jumped: leases that it led got their full time again.")
	m.elections = count("elections_total", "Elections that this member began.")
	m.silences = count("member_silences_total", "Times that this member took another one for hung "+
		"or cut off, because it neither spoke nor answered for its limit.")
	m.renewedOK = m.renewals.WithLabelValues("renewed")
	m.renewedGone = m.renewals.WithLabelValues("not_found")
	m.renewedFailed = m.renewals.WithLabelValues("failed")
	m.caches.register(m.registry)
	m.registry.MustRegister(more...)
	m.registry.MustRegister(
		m.sync, m.apply, m.snapshot, m.ttl, m.lateness, m.renewals,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// follow counts changes of the leader.
func (m *metrics) follow(old, s *replica.Status) {
	if s.Leader != 0 && (s.Leader != old.Leader || s.Term != old.Term) {
		m.leaders.Add(1)
	}
	if s.Primary && !old.Primary {
		m.promotions.Inc()
	}
	m.elections.Add(float64(s.Elections - old.Elections))
}

// observe counts what a step of the core answered and ended.
func (m *metrics) observe(out *replica.Output) {
	for _, p := range out.Proposals {
		g, ok := fsm.Inner(p.Command).(*fsm.Grant)
		if !ok || p.Err != nil || p.Result.Err != nil || p.Result.Repeated {
			continue
		}
		if _, existed := fsm.GrantResult(p.Result.Value); !existed {
			m.ttl.Observe(float64(g.Terms.TTL) / 1000)
		}
	}
	if out.Restored {
		m.installed.Inc()
	}
	for _, late := range out.Late {
		m.lateness.Observe(float64(late) / 1000)
	}
	var ok, gone, failed int
	for _, r := range out.Together {
		ok += r.Kept
	}
	for i := range out.Renewals {
		switch err := out.Renewals[i].Err; {
		case err == nil:
			ok++
		case errors.Is(err, lease.ErrNotFound):
			gone++
		default:
			failed++
		}
	}
	m.renewedOK.Add(float64(ok))
	m.renewedGone.Add(float64(gone))
	m.renewedFailed.Add(float64(failed))
}

// watchPanics registers how many calls panicked.
func (m *metrics) watchPanics(p *listen.Panics) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "panics_total",
		Help: "Calls that met a fault of this member and were ended; the log has each.",
	}, func() float64 { return float64(p.Ended()) }))
}

// watchPeers registers what is measured of the other members.
func (m *metrics) watchPeers(n *node) {
	m.peers.node = n
	m.registry.MustRegister(m.peers)
}

// watchState registers what is read from the member when it is scraped.
func (m *metrics) watchState(n *node) {
	gauge := func(name, help string, f func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "leasehold", Name: name, Help: help,
		}, f))
	}
	counter := func(name, help string, f func(fsm.Stats) uint64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "leasehold", Name: name, Help: help,
		}, func() float64 { return float64(f(n.stats.Load().Stats)) }))
	}
	counter("leases_granted_total", "Leases granted, since start.",
		func(s fsm.Stats) uint64 { return s.Granted })
	counter("leases_revoked_total", "Leases revoked by clients, since start.",
		func(s fsm.Stats) uint64 { return s.Revoked })
	counter("leases_expired_total", "Leases that ended by expiry, since start.",
		func(s fsm.Stats) uint64 { return s.Expired })
	counter("lease_checkpoints_total", "Silent leases whose remaining time was replicated, each "+
		"as often as that was done, since start.",
		func(s fsm.Stats) uint64 { return s.Checkpointed })
	gauge("leases", "Live leases.", func() float64 { return float64(n.stats.Load().Leases) })
	gauge("lease_attached_keys", "Keys attached to leases.",
		func() float64 { return float64(n.stats.Load().Attached) })
	gauge("lease_overdue_seconds", "How long the lease that waits longest to be expired has "+
		"been past its expiry; alert on this.",
		func() float64 { return float64(n.status.Load().Overdue) / 1000 })
	gauge("store_revision", "The store's revision.",
		func() float64 { return float64(n.View().KV.Revision()) })
	gauge("state_bytes", "What the state takes, about, the same at every member: what the quota "+
		"is for, the sum of the next three and of the members.",
		func() float64 { return float64(n.View().Bytes.Sum()) })
	gauge("store_bytes", "What keys and their history take.",
		func() float64 { return float64(n.View().Bytes.Keys) })
	gauge("lease_bytes", "What leases take, with what they hold.",
		func() float64 { return float64(n.View().Bytes.Leases) })
	gauge("session_bytes", "What sessions take, with the answers that are kept for them.",
		func() float64 { return float64(n.View().Bytes.Sessions) })
	gauge("disk_bytes", "Size of the data directory.",
		func() float64 { return float64(n.disk.Usage().DiskBytes) })
	gauge("log_bytes", "Size of the log since the last snapshot.",
		func() float64 { return float64(n.disk.LogBytes()) })
	gauge("raft_term", "The Raft term.", func() float64 { return float64(n.status.Load().Term) })
	gauge("raft_applied_index", "The last applied log index.",
		func() float64 { return float64(n.View().Index) })
	gauge("is_leader", "1 on the member that leads.", func() float64 {
		if n.status.Load().Primary {
			return 1
		}
		return 0
	})
	gauge("watchers", "Watchers of all streams.",
		func() float64 { return float64(n.hub.Stats().Watchers) })
}

// watchTrouble registers what alerts are for.
func (m *metrics) watchTrouble(n *node) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "lease_renewal_near_misses_total",
		Help: "Renewals that came when less than a quarter of the TTL was left, since this member leads.",
	}, func() float64 { return float64(n.stats.Load().NearMisses) }))
	for kind, name := range map[fsm.AlarmKind]string{fsm.NoSpace: "NOSPACE", fsm.Corrupt: "CORRUPT"} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "leasehold", Name: "alarm", Help: "1 while a member has raised the alarm.",
			ConstLabels: prometheus.Labels{"alarm": name},
		}, func() float64 { return raised(n.View().Alarms, kind) }))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "leasehold", Name: "disk_full",
		Help: "1 while the disk is full: a follower then forwards writes, a leader refuses them.",
	}, func() float64 { return oneIf(n.writer.full.Load()) }))
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "copied_members_total",
		Help: "Times that one of two processes with the identity of one member was refused, as " +
			"far as this member knows: a data directory was copied. The log has which.",
	}, func() float64 { return float64(n.peers.copied.Load()) }))
}

// oneIf is 1 for yes, 0 for no.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// raised is 1 if an alarm of a kind is raised, else 0.
func raised(alarms []fsm.Alarm, kind fsm.AlarmKind) float64 {
	return oneIf(slices.ContainsFunc(alarms, func(a fsm.Alarm) bool { return a.Kind.Shown() == kind }))
}
