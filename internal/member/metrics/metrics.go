// Package metrics contains the metrics of a member. [Metrics] counts and times events as they
// happen. [Metrics.Register] adds metrics that are read from the member at each scrape and cost
// nothing otherwise. [Calls] counts gRPC calls.
package metrics

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// Metrics counts and times events as they happen. Like all Prometheus metrics, Sync is safe for
// concurrent use. Status and Step must be called only by the member's core.
type Metrics struct {
	Registry *prometheus.Registry
	Calls    *Calls

	Sync     prometheus.Histogram // time to sync the log, in seconds
	Apply    prometheus.Histogram // time to apply the entries of one step, in seconds
	Snapshot prometheus.Histogram // time to write a snapshot, in seconds
	Jumps    prometheus.Counter   // jumps of the clock

	log        *slog.Logger
	ttl        prometheus.Histogram
	lateness   prometheus.Histogram
	roundTrip  *prometheus.HistogramVec
	leaders    atomic.Uint64 // number of leader changes; this metric has two names
	promotions prometheus.Counter
	installed  prometheus.Counter
	elections  prometheus.Counter
	silences   prometheus.Counter

	renewedOK, renewedGone, renewedFailed, renewedGroups prometheus.Counter

	caches caches
}

// caches contains a leader's measurements of caches.
type caches struct {
	wait   prometheus.Histogram
	slow   *prometheus.CounterVec
	owners map[string]bool // owners that have a label in slow
}

// New returns the metrics of a member. It logs slow caches to log.
func New(log *slog.Logger, more ...prometheus.Collector) *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(), Calls: new(Calls),
		log: log, caches: caches{owners: make(map[string]bool)},
	}
	m.Registry.MustRegister(m.Calls)
	m.Registry.MustRegister(more...)
	m.Registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Sync = m.histogram("log_sync_duration_seconds", "Time to write and sync log entries.",
		0.00002, 18)
	m.Apply = m.histogram("apply_duration_seconds", "Time that the core takes to apply a batch of "+
		"committed entries.", 0.000002, 20)
	m.Snapshot = m.histogram("snapshot_duration_seconds",
		"Time to write a snapshot in the background.", 0.001, 18)
	m.ttl = m.histogram("lease_ttl_seconds", "TTLs of granted leases.", 0.1, 24)
	m.lateness = m.histogram("lease_expiry_lateness_seconds",
		"Time from a lease's expiry until its end was applied.", 0.0005, 20)
	m.caches.wait = m.histogram("cache_wait_seconds",
		"Time that writes waited for caches to acknowledge invalidations.", 0.0005, 16)

	m.promotions = m.counter("promotions_total", "Number of times that this member was promoted and "+
		"started timing leases.")
	m.installed = m.counter("snapshots_installed_total", "Snapshots received from other members.")
	m.Jumps = m.counter("clock_jumps_total", "Clock jumps and pauses of this process. If it was "+
		"the leader, every lease got its full TTL again.")
	m.elections = m.counter("elections_total", "Elections started by this member.")
	m.silences = m.counter("member_silences_total", "Number of times that this member considered "+
		"another one unresponsive, because it neither sent nor responded within its limit.")

	renewals := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "lease_renewals_total",
		Help: "Renewals of leases by outcome. Group counts renewals of all leases of a group.",
	}, []string{"outcome"})
	m.renewedOK = renewals.WithLabelValues("renewed")
	m.renewedGone = renewals.WithLabelValues("not_found")
	m.renewedFailed = renewals.WithLabelValues("failed")
	m.renewedGroups = renewals.WithLabelValues("group")
	m.caches.slow = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "caches_slow_total",
		Help: "Caches that were slow to acknowledge an invalidation, by owner. The log names the " +
			"lease.",
	}, []string{"owner"})
	m.roundTrip = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "etcd", Name: "network_peer_round_trip_time_seconds",
		Help: "Time that the other member takes to respond to a ping. It is pinged once a second, and " +
			"more often when it does not respond.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16), // same buckets as in etcd
	}, []string{"To"})
	m.Registry.MustRegister(renewals, m.caches.slow, m.roundTrip)
	return m
}

// histogram registers a histogram in which each bucket bound is twice the previous one.
func (m *Metrics) histogram(name, help string, first float64, buckets int) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "leasehold", Name: name, Help: help,
		Buckets: prometheus.ExponentialBuckets(first, 2, buckets),
	})
	m.Registry.MustRegister(h)
	return h
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "leasehold", Name: name, Help: help,
	})
	m.Registry.MustRegister(c)
	return c
}

// Status counts changes from one status to the next.
func (m *Metrics) Status(old, s *replica.Status) {
	if s.Leader != 0 && (s.Leader != old.Leader || s.Term != old.Term) {
		m.leaders.Add(1)
	}
	if s.Primary && !old.Primary {
		m.promotions.Inc()
	}
	m.elections.Add(float64(s.Elections - old.Elections))
}

// Step counts the results of a step of the core.
func (m *Metrics) Step(out *replica.Output) {
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
	m.silences.Add(float64(len(out.Silent)))
	m.renewals(out)
	m.caches.step(out, m.log)
}

func (m *Metrics) renewals(out *replica.Output) {
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

const (
	// maxNamed limits how many slow caches are logged per step. A network partition can cause many.
	maxNamed = 64
	// maxOwners limits the number of labels of slow caches, because clients choose the owners.
	maxOwners = 100
)

// step records how long writes waited for caches, and logs slow caches.
func (c *caches) step(out *replica.Output, log *slog.Logger) {
	for _, w := range out.Waits {
		c.wait.Observe(float64(w) / 1000)
	}
	for i := range out.WereSlow {
		s := &out.WereSlow[i]
		c.slow.WithLabelValues(c.owner(s.Lease.Owner)).Inc()
		if i >= maxNamed {
			continue
		}
		log.Warn("a cache was slow to acknowledge an invalidation",
			"lease", fmt.Sprintf("%016x", s.Lease.ID), "owner", s.Lease.Owner,
			"waited-ms", int64(s.Waited))
	}
	if more := len(out.WereSlow) - maxNamed; more > 0 {
		log.Warn("some slow caches were not logged", "more", more)
	}
}

// owner returns the label for an owner.
func (c *caches) owner(name string) string {
	if !c.owners[name] {
		if len(c.owners) == maxOwners {
			return "others"
		}
		c.owners[name] = true
	}
	return name
}

// Answered records how long another member took to respond. It is safe for concurrent use.
func (m *Metrics) Answered(member uint64, took time.Duration) {
	m.roundTrip.WithLabelValues(memberLabel(member)).Observe(took.Seconds())
}

// Forget removes the metrics about members that have left.
func (m *Metrics) Forget(left []fsm.Member) {
	for i := range left {
		m.roundTrip.DeleteLabelValues(memberLabel(left[i].ID))
	}
}

// memberLabel formats the ID of a member for a label, as it is formatted everywhere else.
func memberLabel(id uint64) string { return strconv.FormatUint(id, 16) }
