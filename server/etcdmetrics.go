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
		help := fmt.Sprintf("1 for the label's value, the present %s.", label)
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
	is("server_has_leader", "1 if the member knows a leader.",
		func() bool { return n.status.Load().Leader != 0 })
	is("server_is_leader", "1 on the member that leads.",
		func() bool { return n.status.Load().Primary })
	is("server_is_learner", "1 on a member that does not vote.",
		func() bool { return n.Status().Learner })
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "etcd", Name: "server_leader_changes_seen_total",
		Help: "Changes of the leader that this member saw.",
	}, func() float64 { return float64(m.leaders.Load()) }))
	gauge("server_proposals_committed_total", "The last log index that this member knows to be "+
		"committed.", nil, func() float64 { return float64(n.status.Load().Index) })
	gauge("server_proposals_applied_total", "The last log index that this member has applied.", nil,
		func() float64 { return float64(n.View().Index) })
	gauge("mvcc_db_total_size_in_bytes", "Size of the data directory.", nil,
		func() float64 { return float64(n.Status().DBSize) })
	gauge("mvcc_db_total_size_in_use_in_bytes",
		"What the state takes, which the quota counts: leasehold_state_bytes.", nil,
		func() float64 { return float64(n.Status().DBSizeInUse) })
	gauge("server_quota_backend_bytes", "The quota.", nil,
		func() float64 { return float64(n.View().Quota) })
	gauge("debugging_mvcc_keys_total", "Keys in the store.", nil,
		func() float64 { return float64(n.View().KV.Len()) })
	gauge("debugging_mvcc_current_revision", "The store's revision.", nil,
		func() float64 { return float64(n.View().KV.Revision()) })
}
