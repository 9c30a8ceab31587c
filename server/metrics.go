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
	renewedGroups                         prometheus.Counter
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
		sync: hist("log_sync_duration_seconds", "Time to write and sync log entries.",
			prometheus.ExponentialBuckets(0.00002, 2, 18)),
		apply: hist("apply_duration_seconds", "Time that the core takes to apply a batch of "+
			"committed entries.",
			prometheus.ExponentialBuckets(0.000002, 2, 20)),
		snapshot: hist("snapshot_duration_seconds", "Time to write a snapshot in the background.",
			prometheus.ExponentialBuckets(0.001, 2, 18)),
		ttl: hist("lease_ttl_seconds", "TTLs of granted leases.",
			prometheus.ExponentialBuckets(0.1, 2, 24)),
		lateness: hist("lease_expiry_lateness_seconds",
			"Time from a lease's expiry until its end was applied.",
			prometheus.ExponentialBuckets(0.0005, 2, 20)),
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "leasehold", Name: "lease_renewals_total",
			Help: "Renewals of leases by outcome. Group counts renewals of all leases of a group.",
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
		Help: "Leader changes seen by this member.",
	}, func() float64 { return float64(m.leaders.Load()) }))
	m.promotions = count("promotions_total", "Times that this member was promoted and began to "+
		"time leases.")
	m.installed = count("snapshots_installed_total", "Snapshots received from other members.")
	m.jumps = count("clock_jumps_total", "Clock jumps and pauses of this process. If it led, "+
		"every lease got its full TTL again.")
	m.elections = count("elections_total", "Elections started by this member.")
	m.silences = count("member_silences_total", "Times that this member considered another one "+
		"unresponsive, because it neither sent nor answered within its limit.")
	m.renewedOK = m.renewals.WithLabelValues("renewed")
	m.renewedGone = m.renewals.WithLabelValues("not_found")
	m.renewedFailed = m.renewals.WithLabelValues("failed")
	m.renewedGroups = m.renewals.WithLabelValues("group")
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
	var ok, gone, failed, groups int
	for _, r := range out.Together {
		ok += r.Kept
	}
	for _, r := range out.Groups {
		for i := range r.Renewed {
			if r.Renewed[i].TTL > 0 {
				groups++
			}
		}
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
	m.renewedGroups.Add(float64(groups))
}

// watchPanics registers how many calls panicked.
func (m *metrics) watchPanics(p *listen.Panics) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "panics_total",
		Help: "Calls that panicked and were aborted. The log has the stack traces.",
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
	counter("leases_granted_total", "Leases granted since start.",
		func(s fsm.Stats) uint64 { return s.Granted })
	counter("leases_revoked_total", "Leases revoked by clients since start.",
		func(s fsm.Stats) uint64 { return s.Revoked })
	counter("leases_expired_total", "Leases expired since start.",
		func(s fsm.Stats) uint64 { return s.Expired })
	counter("lease_checkpoints_total", "Checkpoints of silent leases since start.",
		func(s fsm.Stats) uint64 { return s.Checkpointed })
	gauge("leases", "Leases that exist.",
		func() float64 { return float64(n.stats.Load().Leases) })
	gauge("lease_attached_keys", "Keys attached to leases.",
		func() float64 { return float64(n.stats.Load().Attached) })
	gauge("lease_overdue_seconds", "How long the most overdue lease has been past its expiry. "+
		"Alert on this.",
		func() float64 { return float64(n.status.Load().Overdue) / 1000 })
	gauge("store_revision", "Current revision of the store.",
		func() float64 { return float64(n.View().KV.Revision()) })
	gauge("state_bytes", "Approximate size of the state, which the quota bounds; the same on "+
		"every member. Sum of keys, leases, sessions and members.",
		func() float64 { return float64(n.View().Bytes.Sum()) })
	gauge("store_bytes", "Size of keys and their history.",
		func() float64 { return float64(n.View().Bytes.Keys) })
	gauge("lease_bytes", "Size of leases and the ranges that they hold.",
		func() float64 { return float64(n.View().Bytes.Leases) })
	gauge("session_bytes", "Size of sessions and the answers kept for them.",
		func() float64 { return float64(n.View().Bytes.Sessions) })
	gauge("disk_bytes", "Size of the data directory.",
		func() float64 { return float64(n.disk.Usage().DiskBytes) })
	gauge("log_bytes", "Size of the log since the last snapshot.",
		func() float64 { return float64(n.disk.LogBytes()) })
	gauge("raft_term", "Raft term.", func() float64 { return float64(n.status.Load().Term) })
	gauge("raft_applied_index", "Last applied log index.",
		func() float64 { return float64(n.View().Index) })
	gauge("is_leader", "1 on the leader, else 0.", func() float64 {
		if n.status.Load().Primary {
			return 1
		}
		return 0
	})
	gauge("watchers", "Watchers on all streams.",
		func() float64 { return float64(n.hub.Stats().Watchers) })
}

// watchTrouble registers what alerts are for.
func (m *metrics) watchTrouble(n *node) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "lease_renewal_near_misses_total",
		Help: "Renewals that arrived with less than a quarter of the TTL left, since this member " +
			"became the leader.",
	}, func() float64 { return float64(n.stats.Load().NearMisses) }))
	for kind, name := range map[fsm.AlarmKind]string{fsm.NoSpace: "NOSPACE", fsm.Corrupt: "CORRUPT"} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "leasehold", Name: "alarm", Help: "1 while any member raises the alarm.",
			ConstLabels: prometheus.Labels{"alarm": name},
		}, func() float64 { return raised(n.View().Alarms, kind) }))
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "leasehold", Name: "disk_full",
		Help: "1 while the disk is full. A follower then forwards writes, a leader refuses them.",
	}, func() float64 { return oneIf(n.writer.full.Load()) }))
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "copied_members_total",
		Help: "Times that a second process with a member's identity was refused, as seen by this " +
			"member. The log names both processes.",
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
