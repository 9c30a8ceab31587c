package server

import (
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/virtual"
)

// The pages of the same port answer, and its metrics count calls under the
// names that etcd's dashboards use.
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
	eventually(t, "the gauges of leases are published", func() bool { // once a tick
		got := page()
		return strings.Contains(got, "leasehold_leases 1\n") &&
			strings.Contains(got, "leasehold_lease_attached_keys 1\n") &&
			strings.Contains(got, "leasehold_leases_granted_total 1\n")
	})
}

// onlyMember is the only member's id as etcd's tools print it.
func onlyMember(t *testing.T, c *clientv3.Client) string {
	t.Helper()
	r, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(r.Members[0].ID, 16)
}
