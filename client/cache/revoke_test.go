package cache_test

import (
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/virtual"
)

// frozen simulates the cache of a stopped program. It lists its copies when it is opened, but sends
// no acknowledgments of its own.
type frozen struct {
	has     []keyrange.Range
	opened  chan uint64
	notices chan cachelink.Notice
}

func (f *frozen) Opening() []keyrange.Range      { return f.has }
func (f *frozen) Opened(term uint64)             { f.opened <- term }
func (f *frozen) Invalidated(n cachelink.Notice) { f.notices <- n }
func (f *frozen) Writing([]keyrange.Range)       {}
func (f *frozen) Refused(error)                  {}

// hasKey adds a key to a frozen cache, and returns the cache's lease and link.
func (f *frozen) hasKey(t *testing.T, c *client.Client, key string) (
	*client.Lease, cachelink.Link,
) {
	t.Helper()
	held := must[*client.Lease](t)(c.Grant(timeout(t), client.Grant{
		TTL: 10 * time.Minute, Owner: "host-1", Grace: -1,
	}.ForCache(cachelink.Internal{}, []keyrange.Range{keyrange.Range(store.Prefix("f/"))})))
	link := must[cachelink.Link](t)(held.LinkCache(cachelink.Internal{}, f))
	t.Cleanup(link.Close)
	link.Ack(cachelink.Ack{Open: <-f.opened})
	f.has = []keyrange.Range{{Key: key}}
	eventually(t, "the cache may keep the key", func() bool {
		_, term, err := link.Fill(timeout(t), f.has[0])
		if err != nil {
			t.Fatal(err)
		}
		return term != 0
	})
	return held, link
}

// TestRevokeStoppedCache checks that revoking the lease of a stopped cache succeeds immediately. A
// write to a key in the cache still waits for the cache (C1), even under another leader or after a
// restart. It completes when the cache acknowledges the invalidation.
func TestRevokeStoppedCache(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			members int
			change  func(t *testing.T, cl cluster)
		}{
			"one leader": {1, func(*testing.T, cluster) {}},
			"restart": {1, func(_ *testing.T, cl cluster) {
				cl[0].End()
				cl[0].Start()
				cl[0].Await()
			}},
			"another leader": {3, func(t *testing.T, cl cluster) { moveLeader(t, cl.etcd(t)) }},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				cl := newCluster(t, tt.members)
				f := &frozen{opened: make(chan uint64, 64), notices: make(chan cachelink.Notice, 1024)}
				held, link := f.hasKey(t, connect(t, cl.endpoints()...), "f/a")
				other := connect(t, cl.endpoints()...)
				if err := other.Revoke(timeout(t), held.Ref()); err != nil {
					t.Fatal(err)
				}
				_, err := other.Describe(timeout(t), leases.Ref{ID: held.ID()})
				if !errors.Is(err, client.ErrLeaseNotFound) {
					t.Errorf("Describe: %v, want ErrLeaseNotFound", err)
				}
				tt.change(t, cl)
				events := must[*client.LeaseWatcher](t)(
					other.LeaseEvents(timeout(t), leases.Watch{Owner: "host-1"}))
				t.Cleanup(events.Close)
				written := make(chan struct{})
				go func() {
					defer close(written)
					put(t, connect(t, cl.endpoints()...), "f/a", "2")
				}()
				for slow := false; !slow; { // until the write is waiting
					for _, e := range must[leases.Update](t)(events.Next(timeout(t))).Events {
						slow = slow || e.Kind == leases.CacheSlow && e.Lease.ID == held.ID()
					}
				}
				select {
				case <-written:
					t.Error("the write did not wait")
				default:
				}
				for done := false; !done; {
					select {
					case n := <-f.notices:
						link.Ack(cachelink.Ack{Term: n.Term, Seq: n.Seq})
					case <-written:
						done = true
					}
				}
			})
		}
	})
}
