package lock_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestJeopardyEndsLock checks that a lock whose lease was invalid for a while has ended even if the
// lease recovers, whether or not the lock's context was requested before. In this test, another
// client keeps the lease alive while the first is disconnected.
func TestJeopardyEndsLock(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		members := newCluster(t, 1)
		ctx, e := rig.Soon(t), members.etcd(t)
		c, list := members.wires(t)
		const ttl = 2 * time.Second
		l := rig.Must[*client.Lease](t)(c.Grant(ctx, client.Grant{TTL: ttl, Grace: time.Minute}))
		s := l.Session()
		plain := rig.Must[*lock.Held](t)(lock.NewMutex(s, "plain").Lock(ctx))
		asked := rig.Must[*lock.Held](t)(lock.NewMutex(s, "asked").Lock(ctx))
		if asked.Context().Err() != nil {
			t.Fatal(asked.Err())
		}
		await := func(valid bool) {
			for l.Valid() == valid {
				rig.Must[*clientv3.LeaseKeepAliveResponse](t)(e.KeepAliveOnce(ctx, clientv3.LeaseID(l.ID())))
				select {
				case <-l.Changed():
				case <-time.After(ttl / 10):
				}
			}
		}
		setCut(list, true)
		await(true)
		setCut(list, false)
		await(false)
		if l.Err() != nil {
			t.Fatalf("the lease did not recover: %v", l.Err())
		}
		for _, h := range []*lock.Held{plain, asked} {
			if h.Err() == nil || h.Context().Err() == nil || !h.ValidUntil().IsZero() {
				t.Errorf("%s recovered: %v, valid until %v", h.Key(), h.Err(), h.ValidUntil())
			}
		}
	})
}
