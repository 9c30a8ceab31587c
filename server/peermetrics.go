package server

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// peerMetrics are what a member measures of the others. What etcd measures, too, has etcd's name.
// The rest is read when it is scraped.
type peerMetrics struct {
	roundTrip *prometheus.HistogramVec
	node      *node
}

var (
	peerActive = prometheus.NewDesc("etcd_network_active_peers",
		"1 if this member has a connection to the other one, else 0.",
		[]string{"Local", "Remote"}, nil)
	peerSent = prometheus.NewDesc("etcd_network_peer_sent_bytes_total",
		"Bytes of messages sent to the other member, excluding snapshots.", []string{"To"}, nil)
	peerReceived = prometheus.NewDesc("etcd_network_peer_received_bytes_total",
		"Bytes of messages received from the other member, excluding snapshots.",
		[]string{"From"}, nil)
	peerDropped = prometheus.NewDesc("etcd_network_peer_sent_failures_total",
		"Messages dropped because the other member was not connected or too slow.",
		[]string{"To"}, nil)
	peerLag = prometheus.NewDesc("leasehold_member_lag_entries",
		"Committed entries that the other member is not known to have. Only on the "+
			"leader.", []string{"member"}, nil)
	peerLimit = prometheus.NewDesc("leasehold_member_silence_limit_seconds",
		"Silence after which the other member counts as unresponsive. Absent if "+
			"--election-timeout or --heartbeat-interval is set.",
		[]string{"member"}, nil)
	peerSlowest = prometheus.NewDesc("leasehold_member_round_trip_max_seconds",
		"Longest time that the other member took to answer in the last five to ten minutes.",
		[]string{"member"}, nil)
)

func newPeerMetrics() *peerMetrics {
	return &peerMetrics{roundTrip: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "etcd", Name: "network_peer_round_trip_time_seconds",
		Help: "Time that the other member takes to answer. It is asked once a second, and more " +
			"often when it is silent.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16), // etcd's
	}, []string{"To"})}
}

// Describe implements prometheus.Collector.
func (m *peerMetrics) Describe(out chan<- *prometheus.Desc) {
	m.roundTrip.Describe(out)
	for _, d := range []*prometheus.Desc{
		peerActive, peerSent, peerReceived, peerDropped, peerLag, peerLimit, peerSlowest,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *peerMetrics) Collect(out chan<- prometheus.Metric) {
	m.roundTrip.Collect(out)
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
	}
	for _, other := range m.node.View().Members {
		if other.ID == m.node.member {
			continue
		}
		name, active := memberLabel(other.ID), uint64(0)
		if _, ok := m.node.peers.Since(other.ID); ok {
			active = 1
		}
		emit(peerActive, prometheus.GaugeValue, active, memberLabel(m.node.member), name)
		t := m.node.peers.Traffic(other.ID)
		emit(peerSent, prometheus.CounterValue, t.Sent, name)
		emit(peerReceived, prometheus.CounterValue, t.Received, name)
		emit(peerDropped, prometheus.CounterValue, t.Dropped, name)
	}
	for _, lag := range m.node.stats.Load().Lags {
		emit(peerLag, prometheus.GaugeValue, lag.Entries, memberLabel(lag.Member))
	}
	for _, s := range m.node.stats.Load().Silences {
		for d, ms := range map[*prometheus.Desc]lease.TTL{peerLimit: s.Limit, peerSlowest: s.RoundTrip} {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(ms)/1000,
				memberLabel(s.Member))
		}
	}
}

// answered notes how long a member took to answer.
func (m *peerMetrics) answered(member uint64, took time.Duration) {
	m.roundTrip.WithLabelValues(memberLabel(member)).Observe(took.Seconds())
}

// forget drops what was measured of members that have left.
func (m *peerMetrics) forget(left []fsm.Member) {
	for _, member := range left {
		m.roundTrip.DeleteLabelValues(memberLabel(member.ID))
	}
}

// memberLabel is a member's ID as it is shown everywhere.
func memberLabel(id uint64) string { return strconv.FormatUint(id, 16) }
