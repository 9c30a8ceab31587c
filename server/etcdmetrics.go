package server

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/version"
)

// watchEtcdState registers those of etcd's gauges that probes, alerts and
// dashboards ask for most, under etcd's names. They are read when scraped.
func (m *metrics) watchEtcdState(n *node) {
	gauge := func(name, help string, labels prometheus.Labels, f func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "etcd", Name: name, Help: help, ConstLabels: labels,
		}, f))
	}
	fact := func(name, label, value string) {
		help := fmt.Sprintf("Always 1. The label has the %s.", label)
		gauge(name, help, prometheus.Labels{label: value}, func() float64 { return 1 })
	}
	is := func(name, help string, f func() bool) {
		gauge(name, help, nil, func() float64 {
			if f() {
				return 1
			}
			return 0
		})
	}
	fact("server_version", "server_version", version.EtcdVersion)
	fact("cluster_version", "cluster_version", version.EtcdAPIVersion)
	fact("server_id", "server_id", fmt.Sprintf("%x", n.member))
	is("server_has_leader", "1 if the member knows a leader, else 0.",
		func() bool { return n.status.Load().Leader != 0 })
	is("server_is_leader", "1 on the leader, else 0.",
		func() bool { return n.status.Load().Primary })
	is("server_is_learner", "1 on a learner, else 0.",
		func() bool { return n.Status().Learner })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "etcd", Name: "server_leader_changes_seen_total",
		Help: "Leader changes seen by this member.",
	}, func() float64 { return float64(m.leaders.Load()) }))
	gauge("server_proposals_committed_total", "Last log index that this member knows to be "+
		"committed.", nil, func() float64 { return float64(n.status.Load().Index) })
	gauge("server_proposals_applied_total", "Last log index applied by this member.", nil,
		func() float64 { return float64(n.View().Index) })
	gauge("mvcc_db_total_size_in_bytes", "Size of the data directory.", nil,
		func() float64 { return float64(n.Status().DBSize) })
	gauge("mvcc_db_total_size_in_use_in_bytes",
		"Size of the state that the quota bounds, as leasehold_state_bytes.", nil,
		func() float64 { return float64(n.Status().DBSizeInUse) })
	gauge("server_quota_backend_bytes", "Quota of the state in bytes.", nil,
		func() float64 { return float64(n.View().Quota) })
	gauge("debugging_mvcc_keys_total", "Keys in the store.", nil,
		func() float64 { return float64(n.View().KV.Len()) })
	gauge("debugging_mvcc_current_revision", "Current revision of the store.", nil,
		func() float64 { return float64(n.View().KV.Revision()) })
}
