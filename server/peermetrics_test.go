package server

import (
	"context"
	"fmt"
	"testing"

	"leasehold.dev/test/virtual"
)

// measured returns the values of a member's metric, by the other member that its last label names;
// of a histogram, how often it was observed.
func (r *running) measured(t *testing.T, name string) map[string]float64 {
	t.Helper()
	all, err := r.core.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			of := ""
			for _, l := range m.GetLabel() {
				if l.GetName() != "Local" {
					of = l.GetValue()
				}
			}
			out[of] = m.GetGauge().GetValue() + m.GetCounter().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// TestPeerMetrics: the metrics tell which members are connected, that messages go to and fro, how
// many are dropped, and how far a member is behind.
func TestPeerMetrics(t *testing.T) { virtual.Test(t, testPeerMetrics) }

func testPeerMetrics(t *testing.T) {
	members := runAll(t, clusterConfigs(t, 3)...)
	lead, others := leader(t, members)
	id := func(m *running) string { return memberLabel(m.node.member) }
	late, stays := others[0], others[1]
	up := []*running{lead, stays, late}
	leads := func() *running { // by now
		for _, m := range up {
			if m.node.status.Load().Leading {
				return m
			}
		}
		return lead
	}
	for _, m := range members {
		eventually(t, m.cfg.Name+" knows the others", func() bool {
			active := m.measured(t, "etcd_network_active_peers")
			answers := m.measured(t, "etcd_network_peer_round_trip_time_seconds")
			sum := active[id(lead)] + active[id(late)] + active[id(stays)]
			return sum == 2 && len(active) == 2 && len(answers) == 2
		})
	}
	for i := range 20 {
		lead.put(t, fmt.Sprint("k", i), "v")
	}
	eventually(t, "what is sent is received", func() bool {
		sent := lead.measured(t, "etcd_network_peer_sent_bytes_total")[id(late)]
		received := late.measured(t, "etcd_network_peer_received_bytes_total")[id(lead)]
		return received > 20 && received <= sent
	})
	eventually(t, "all are up to date", func() bool {
		now := leads()
		behind := now.measured(t, "leasehold_member_lag_entries")
		committed := late.measured(t, "etcd_server_proposals_committed_total")[""]
		applied := late.measured(t, "etcd_server_proposals_applied_total")[""]
		return len(behind) == 2 && behind[id(lead)]+behind[id(late)]+behind[id(stays)] == 0 &&
			applied > 20 && applied == committed && applied == float64(now.node.View().Index)
	})

	dropped := make(map[*running]float64)
	for _, m := range []*running{lead, stays} {
		dropped[m] = m.measured(t, "etcd_network_peer_sent_failures_total")[id(late)]
	}
	up = up[:2]
	if err := late.stop(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		lead.put(t, fmt.Sprint("k", i), "w")
	}
	eventually(t, "the member that is away is seen to be", func() bool {
		// A new leader takes who is away for one that has nothing.
		now := leads()
		_, _ = now.client.Get(context.Background(), "k") // with a message to each member
		behind := now.measured(t, "leasehold_member_lag_entries")
		failures := now.measured(t, "etcd_network_peer_sent_failures_total")
		return behind[id(late)] >= 20 && len(behind) == 2 &&
			now.measured(t, "etcd_network_active_peers")[id(late)] == 0 &&
			failures[id(late)] > dropped[now]
	})
	begin(t, late.cfg).await(t)
	eventually(t, "the member that is back is up to date", func() bool {
		for _, m := range []*running{lead, stays} {
			behind, ok := m.measured(t, "leasehold_member_lag_entries")[id(late)]
			if ok && behind == 0 && m.measured(t, "etcd_network_active_peers")[id(late)] == 1 {
				return true
			}
		}
		return false
	})
}
