package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// TestMetricsPage checks that the client port serves metrics under the names used by etcd
// dashboards.
func TestMetricsPage(t *testing.T) { virtual.Test(t, testMetricsPage) }

func testMetricsPage(t *testing.T) {
	c := testConfig(t.TempDir())
	r := run(t, c)
	lease, err := r.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	r.put(t, "k", "v", clientv3.WithLease(lease.ID))
	if _, err := r.client.KeepAliveOnce(t.Context(), lease.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Put(t.Context(), "", "v"); err == nil {
		t.Fatal("an empty key was accepted")
	}
	page := func() string {
		_, text := getPage(t, c.URLs.ListenClient[0].Path, "/metrics")
		return text
	}
	want := []string{
		`grpc_server_handled_total{grpc_code="OK",grpc_method="Put",` +
			`grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`grpc_server_handled_total{grpc_code="InvalidArgument",grpc_method="Put",` +
			`grpc_service="etcdserverpb.KV",grpc_type="unary"} 1`,
		`grpc_server_msg_received_total{grpc_method="LeaseKeepAlive",` +
			`grpc_service="etcdserverpb.Lease",grpc_type="bidi_stream"} 1`,
		`leasehold_lease_renewals_total{outcome="renewed"} 1`,
		`leasehold_lease_ttl_seconds_count 1`, "leasehold_lease_checkpoints_total ",
		`leasehold_is_leader 1`, `leasehold_alarm{alarm="NOSPACE"} 0`,
		`leasehold_alarm{alarm="CORRUPT"} 0`, "leasehold_clock_jumps_total ",
		"leasehold_lease_renewal_near_misses_total 0\n",
		"etcd_server_version{server_version=\"3.7.3\"} 1\n",
		"etcd_cluster_version{cluster_version=\"3.7\"} 1\n",
		"etcd_server_id{server_id=\"" + onlyMember(t, r.client) + "\"} 1\n",
		"etcd_server_has_leader 1\n", "etcd_server_is_leader 1\n", "etcd_server_is_learner 0\n",
		"etcd_debugging_mvcc_keys_total 1\n", "etcd_debugging_mvcc_current_revision 2\n",
		"etcd_mvcc_db_total_size_in_bytes ", "etcd_mvcc_db_total_size_in_use_in_bytes ",
		"etcd_server_quota_backend_bytes ",
		"go_goroutines", "process_resident_memory_bytes", "leasehold_log_sync_duration_seconds_count",
		"leasehold_apply_duration_seconds_count", "leasehold_lease_expiry_lateness_seconds_count 0",
	}
	got := page()
	for _, line := range want {
		if !strings.Contains(got, line) {
			t.Errorf("metrics lack %s", line)
		}
	}
	// the gauges are updated once per tick
	eventually(t, "the gauges of leases are published", func() bool {
		got := page()
		return strings.Contains(got, "leasehold_leases 1\n") &&
			strings.Contains(got, "leasehold_lease_attached_keys 1\n") &&
			strings.Contains(got, "leasehold_leases_granted_total 1\n")
	})
}

// onlyMember returns the ID of the only member in the format of etcd's tools.
func onlyMember(t *testing.T, c *clientv3.Client) string {
	t.Helper()
	r, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(r.Members[0].ID, 16)
}

// measured returns the values of a metric, keyed by the value of its last label, which identifies
// another member. For a histogram, the value is the number of observations.
func (r *running) measured(t *testing.T, name string) map[string]float64 {
	t.Helper()
	all, err := r.core.metrics.Registry.Gather()
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

// TestPeerMetrics checks that metrics show which members are connected, the traffic between them,
// dropped messages, and how far behind each member is.
func TestPeerMetrics(t *testing.T) { virtual.Test(t, testPeerMetrics) }

func testPeerMetrics(t *testing.T) {
	members := runAll(t, clusterConfigs(t, 3)...)
	lead, others := leader(t, members)
	id := func(m *running) string { return fmt.Sprintf("%x", m.node.member) }
	late, stays := others[0], others[1]
	up := []*running{lead, stays, late}
	leads := func() *running { // returns the current leader
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
		// The leader may have changed. A new leader assumes that an unresponsive member has an
		// empty log.
		now := leads()
		_, _ = now.client.Get(context.Background(), "k") // the read sends a message to each member
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

// gather returns the values of a per-principal metric, keyed by "resource principal".
func (r *running) gather(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := r.core.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			labels := make(map[string]string)
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			n := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			out[labels["resource"]+" "+labels["principal"]] = n
		}
	}
	return out
}

// tenant creates a user, limits it to has leases, and grants that many. Each of the next refused
// grants must fail.
func (r *running) tenant(t *testing.T, user string, has, refused int) {
	t.Helper()
	r.asRoot(t, &fsm.UserAdd{Name: user, NoPassword: true})
	r.asRoot(t, &fsm.SetLimits{
		Of:   access.Holder{Kind: access.OfUser, Name: user},
		List: []access.LimitChange{{What: access.Leases, Most: int64(has)}},
	})
	ctx := api.WithCaller(t.Context(), access.Caller{
		User: user, Revision: r.node.View().Access.Revision(),
	})
	for i := range has + refused {
		id := lease.ID(1000*len(r.node.View().Access.Users()) + i)
		res, err := r.node.Propose(ctx, &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000}})
		limit := new(access.LimitError)
		if err = errors.Join(err, res.Err); errors.As(err, &limit) != (i >= has) {
			t.Fatalf("lease %d of %s: %v", i, user, err)
		}
	}
}

// TestPrincipalMetrics checks that metrics name the configured number of principals, chosen by
// highest use and by refusals, and include the total. With a setting of 0, they name no principals.
func TestPrincipalMetrics(t *testing.T) { virtual.Test(t, testPrincipalMetrics) }

func testPrincipalMetrics(t *testing.T) {
	type values = map[string]float64
	for names, want := range []struct{ use, refused values }{
		{values{"leases ": 6}, values{"leases ": 3}},
		{values{"leases ": 6}, values{"leases u1": 1, "leases ": 2}},
		{values{"leases u2": 2, "leases ": 4}, values{"leases u1": 1, "leases u2": 2}},
	} {
		c := cheapConfig(t.TempDir())
		c.Access.MetricsPrincipals = names
		r := run(t, c)
		withUsers(t, r)
		r.tenant(t, "u1", 1, 1)
		r.tenant(t, "u2", 2, 2)
		r.tenant(t, "\xff", 3, 0)
		for name, want := range map[string]values{
			"leasehold_principal_use": want.use, "leasehold_limit_refusals_total": want.refused,
		} {
			got := r.gather(t, name)
			maps.DeleteFunc(got, func(key string, n float64) bool {
				return n == 0 || strings.HasPrefix(key, "bytes ")
			})
			if !maps.Equal(got, want) {
				t.Errorf("%d names: %s is %v, want %v", names, name, got, want)
			}
		}
	}
}
