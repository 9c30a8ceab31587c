package lock_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestMain says when a test has left a goroutine behind.
func TestMain(m *testing.M) {
	harness.Parallel()
	goleak.VerifyTestMain(m)
}

// cluster is members that run in this process.
type cluster []*inprocess.Member

// newCluster runs n members and waits until each serves.
func newCluster(t testing.TB, n int) cluster {
	t.Helper()
	return inprocess.Run(t, n)
}

// connect returns a client of all members.
func (c cluster) connect(t testing.TB) *client.Client {
	t.Helper()
	return inprocess.Connect(t, client.Config{}, inprocess.Endpoints(c)...)
}

// etcd returns a client of etcd's for all members.
func (c cluster) etcd(t testing.TB) *clientv3.Client {
	t.Helper()
	return inprocess.Etcd(t, inprocess.Endpoints(c)...)
}

// session grants a lease of a minute and returns a session of it.
func session(t testing.TB, c *client.Client) *lock.Session {
	t.Helper()
	l, err := c.Grant(rig.Soon(t), client.Grant{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return lock.NewSession(c, l)
}
