package lock_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"leasehold.dev/client"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestMain fails if a test leaks a goroutine.
func TestMain(m *testing.M) {
	harness.Parallel()
	goleak.VerifyTestMain(m)
}

// cluster is a list of members in the test process.
type cluster []*inprocess.Member

func newCluster(t testing.TB, n int) cluster {
	t.Helper()
	return inprocess.Run(t, n)
}

// connect returns a client of all members.
func (c cluster) connect(t testing.TB) *client.Client {
	t.Helper()
	return inprocess.Connect(t, client.Config{}, inprocess.Endpoints(c)...)
}

// etcd returns an etcd client of all members.
func (c cluster) etcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return inprocess.Etcd(t, inprocess.Endpoints(c)...)
}

// session opens a session with a TTL of a minute.
func session(t testing.TB, c *client.Client) *client.Session {
	t.Helper()
	return rig.Must[*client.Session](t)(c.Open(rig.Soon(t), client.Grant{TTL: time.Minute}))
}
