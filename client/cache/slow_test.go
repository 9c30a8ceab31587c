package cache_test

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/leases"
	"leasehold.dev/test/inprocess"
)

// TestEvictSlowCache checks that a watcher of lease events on any member is notified of a cache
// that delays a write. The event contains the cache's owner. The watcher can revoke the cache's
// lease. The write completes once the cache has ended by its own clock, and the next write does not
// wait.
func TestEvictSlowCache(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 3)
		line := cl[0].Line()
		dead := open(t, connect(t, line.Endpoint()), "d/", cache.Options{
			TTL: 16 * time.Second, MemoryOnly: true, Name: "reader/1", Owner: "host-1",
		})
		other := connect(t, cl.endpoints()...)
		put(t, other, "d/a", "1")
		keeps(t, dead, "d/a")
		var all []*follower
		follow := func(at string) *follower {
			w := must[*client.LeaseWatcher](t)(connect(t, at).LeaseEvents(timeout(t), leases.Watch{
				NamePrefix: "reader/",
			}))
			t.Cleanup(w.Close)
			all = append(all, &follower{t: t, w: w})
			return all[len(all)-1]
		}
		for _, at := range cl.endpoints() {
			follow(at)
		}
		line.SetFrozen(true)
		written := make(chan time.Time, 1)
		go func() {
			defer close(written) // in case the write fails
			put(t, other, "d/a", "2")
			written <- time.Now()
		}()
		var slow leases.Event
		isSlow := func(f *follower) {
			t.Helper()
			if slow = f.next(); slow.Kind == leases.Granted { // sent by a lagging member
				slow = f.next()
			}
			if slow.Kind != leases.CacheSlow || slow.Lease.Owner != "host-1" || slow.Seq != 0 ||
				slow.Waited < time.Second || slow.Lease.ID != dead.Lease().ID() {
				t.Errorf("got %+v, want CacheSlow", slow)
			}
		}
		for _, f := range all {
			isSlow(f)
		}
		for _, at := range cl.endpoints() {
			isSlow(follow(at)) // a new watcher is notified as well
		}
		until := dead.Lease().ValidUntil()
		err := other.Revoke(timeout(t), leases.Ref{ID: slow.Lease.ID})
		if err != nil {
			t.Fatal(err)
		}
		if at := <-written; at.Before(until) {
			t.Errorf("written %v before the cache ended", until.Sub(at))
		}
		put(t, other, "d/a", "3") // does not wait anymore
		for _, f := range all {
			if e := f.next(); e.Kind != leases.Revoked {
				t.Errorf("after the revocation: %+v", e)
			}
			if e := f.next(); e.Kind != leases.CacheSlowEnded {
				t.Errorf("after the write: %+v", e)
			}
		}
	})
}

// follower reads lease events one at a time.
type follower struct {
	t      *testing.T
	w      *client.LeaseWatcher
	events []leases.Event
}

func (f *follower) next() leases.Event {
	f.t.Helper()
	for len(f.events) == 0 {
		f.events = must[leases.Update](f.t)(f.w.Next(timeout(f.t))).Events
	}
	e := f.events[0]
	f.events = f.events[1:]
	return e
}
