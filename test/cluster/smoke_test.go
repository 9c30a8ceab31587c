package cluster

import (
	"fmt"
	"os/exec"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// TestSmoke checks the basics with three real members. A write succeeds after the leader is killed.
// After all members are killed and restarted, all acknowledged data is present (S2). If etcdctl is
// installed, it reads the same data.
func TestSmoke(t *testing.T) {
	tier.RealTime(t)
	c := newCluster(t, 3)
	lease := smokeCall(t, "grant", func() (*clientv3.LeaseGrantResponse, error) {
		return c.leader().admin.Grant(t.Context(), 1000)
	})
	put := func(m *member, key string) {
		t.Helper()
		smokeCall(t, "put "+key, func() (*clientv3.PutResponse, error) {
			return m.admin.Put(t.Context(), key, "value of "+key, clientv3.WithLease(lease.ID))
		})
	}
	put(c.leader(), "smoke/1")
	leader := c.leader()
	leader.kill()
	put(c.others(leader)[0], "smoke/2")
	for _, m := range c.others(leader) {
		m.kill()
	}
	for _, m := range c.members {
		m.launch()
	}
	c.serves()
	put(c.members[0], "smoke/3")

	got := smokeCall(t, "get", func() (*clientv3.GetResponse, error) {
		return c.members[0].admin.Get(t.Context(), "smoke/", clientv3.WithPrefix())
	})
	if len(got.Kvs) != 3 {
		t.Fatalf("%d keys, want smoke/1 to smoke/3: %v", len(got.Kvs), got.Kvs)
	}
	for i, kv := range got.Kvs {
		key := fmt.Sprintf("smoke/%d", i+1)
		if string(kv.Key) != key || string(kv.Value) != "value of "+key || kv.Lease != int64(lease.ID) {
			t.Errorf("key %d is %v, want %s with its value and lease %x", i, kv, key, lease.ID)
		}
	}
	if etcdctl, err := exec.LookPath("etcdctl"); err == nil {
		cmd := exec.Command(etcdctl, "--endpoints", c.members[0].url, "--command-timeout", "60s",
			"get", "smoke/2", "--print-value-only")
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "value of smoke/2\n" {
			t.Errorf("etcdctl get smoke/2: %q, %v", out, err)
		}
	}
}

// smokeCall retries an idempotent call until it succeeds.
func smokeCall[R any](t *testing.T, what string, call func() (R, error)) (response R) {
	t.Helper()
	harness.Eventually(t, what, func() (err error) {
		response, err = call()
		return err
	})
	return response
}
