package server

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/replica"
)

// cacheMetrics are what a leader measures of the caches of others.
type cacheMetrics struct {
	waits prometheus.Histogram
	slow  *prometheus.CounterVec
	// owners are those that slow is labelled with.
	owners map[string]bool
}

// maxNamed bounds how many caches the log names that were slow at one time, such as all of a part
// of the network. All are counted.
const maxNamed = 64

// maxOwners bounds the owners of slow caches that are told apart: their names are the clients'.
const maxOwners = 100

func (m *cacheMetrics) register(r *prometheus.Registry) {
	m.waits = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "leasehold", Name: "cache_wait_seconds",
		Help:    "Time that writes waited for caches to acknowledge invalidations.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
	})
	m.slow = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "leasehold", Name: "caches_slow_total",
		Help: "Caches that were slow to acknowledge an invalidation, by owner. The log names the " +
			"lease.",
	}, []string{"owner"})
	m.owners = make(map[string]bool)
	r.MustRegister(m.waits, m.slow)
}

// observeCaches counts for how long writes waited for caches, and names the slow ones.
func (m *metrics) observeCaches(out *replica.Output, log *slog.Logger) {
	for _, w := range out.Waits {
		m.caches.waits.Observe(float64(w) / 1000)
	}
	for i := range out.WereSlow {
		s := &out.WereSlow[i]
		m.caches.slow.WithLabelValues(m.caches.owner(s.Lease.Owner)).Inc()
		if i >= maxNamed {
			continue
		}
		log.Warn("a cache was slow to acknowledge an invalidation",
			"lease", fmt.Sprintf("%016x", s.Lease.ID), "owner", s.Lease.Owner,
			"waited-ms", int64(s.Waited))
	}
	if more := len(out.WereSlow) - maxNamed; more > 0 {
		log.Warn("more caches were slow than the log names", "more", more)
	}
}

// owner is the label of an owner.
func (m *cacheMetrics) owner(name string) string {
	if !m.owners[name] {
		if len(m.owners) == maxOwners {
			return "others"
		}
		m.owners[name] = true
	}
	return name
}

// watchCaches registers what is read from the member when it is scraped.
func (m *metrics) watchCaches(n *node) {
	gauge := func(name, help string, f func(*stateStats) int) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "leasehold", Name: name, Help: help,
		}, func() float64 { return float64(f(n.stats.Load())) }))
	}
	gauge("leases_holding", "Leases that hold ranges for a cache.",
		func(s *stateStats) int { return s.Holding })
	gauge("caches_open", "Caches open at this member.",
		func(s *stateStats) int { return s.Open })
	gauge("caches_wide", "Caches that this leader assumes to have everything that they hold, "+
		"because they have not reported what they have.",
		func(s *stateStats) int { return s.Caches.Wide })
	gauge("caches_pending", "Caches with pending invalidations from this leader.",
		func(s *stateStats) int { return s.Caches.Owing })
	gauge("cache_ranges", "Keys and ranges that caches may have, as recorded by this leader.",
		func(s *stateStats) int { return s.Caches.Spans })
	gauge("cache_writes_waiting", "Writes waiting for caches.",
		func(s *stateStats) int { return s.Caches.Waiting })
	counter := func(name, help string, f func(*directory.Stats) uint64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Namespace: "leasehold", Name: name, Help: help,
		}, func() float64 { return float64(f(&n.stats.Load().Caches)) }))
	}
	counter("cache_invalidations_total", "Invalidations sent since this member began to lead.",
		func(s *directory.Stats) uint64 { return s.Sent })
	counter("caches_outlived_total", "Caches that writes waited for until their leases ended, "+
		"since this member became the leader.",
		func(s *directory.Stats) uint64 { return s.Outlived })
}
