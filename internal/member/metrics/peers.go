package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/lease"
)

// peers collects a member's metrics about other members. Metrics that also exist in etcd have the
// same names here.
type peers struct{ of *Member }

var (
	peerActive = prometheus.NewDesc("etcd_network_active_peers",
		"1 if this member is connected to the other member, otherwise 0.",
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
		"Committed entries that the other member has not acknowledged. Reported only by "+
			"the leader.", []string{"member"}, nil)
	peerLimit = prometheus.NewDesc("leasehold_member_silence_limit_seconds",
		"Time without messages after which the other member is considered unresponsive. Absent if "+
			"--election-timeout or --heartbeat-interval is set.",
		[]string{"member"}, nil)
	peerSlowest = prometheus.NewDesc("leasehold_member_round_trip_max_seconds",
		"Longest time that the other member took to respond in the last five to ten minutes.",
		[]string{"member"}, nil)
)

// Describe implements prometheus.Collector.
func (m peers) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		peerActive, peerSent, peerReceived, peerDropped, peerLag, peerLimit, peerSlowest,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m peers) Collect(out chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, value uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
	}
	for _, other := range m.of.View().Members {
		if other.ID == m.of.ID {
			continue
		}
		name, active := memberLabel(other.ID), uint64(0)
		if _, ok := m.of.Peers.Since(other.ID); ok {
			active = 1
		}
		emit(peerActive, prometheus.GaugeValue, active, memberLabel(m.of.ID), name)
		t := m.of.Peers.Traffic(other.ID)
		emit(peerSent, prometheus.CounterValue, t.Sent, name)
		emit(peerReceived, prometheus.CounterValue, t.Received, name)
		emit(peerDropped, prometheus.CounterValue, t.Dropped, name)
	}
	for _, lag := range m.of.State().Lags {
		emit(peerLag, prometheus.GaugeValue, lag.Entries, memberLabel(lag.Member))
	}
	for _, s := range m.of.State().Silences {
		for d, ms := range map[*prometheus.Desc]lease.TTL{peerLimit: s.Limit, peerSlowest: s.RoundTrip} {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(ms)/1000,
				memberLabel(s.Member))
		}
	}
}
