package cache_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/leases"
)

// TestEvict: who follows the events of leases, at whatever member, learns of the cache that a
// write waits for, with its owner, while it waits, and ends it by revoking its lease: the write
// goes on when the cache has ended by its own clock, and the next one does not wait.
func TestEvict(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 3)
	line := cl[0].Line()
	dead := open(t, connect(t, line.Endpoint()), "d/", cache.Options{
		TTL: 8 * time.Second, MemoryOnly: true, Name: "reader/1", Owner: "host-1",
	})
	other := connect(t, cl.endpoints()...)
	put(t, other, "d/a", "1")
	keeps(t, dead, "d/a")
	var watchers []*client.LeaseWatcher
	follow := func(at string) *client.LeaseWatcher {
		w := must[*client.LeaseWatcher](t)(connect(t, at).LeaseEvents(ask(t), leases.Watch{
			NamePrefix: "reader/",
		}))
		t.Cleanup(w.Close)
		watchers = append(watchers, w)
		return w
	}
	for _, at := range cl.endpoints() {
		follow(at)
	}
	line.SetFrozen(true)
	written := make(chan time.Time, 1)
	go func() {
		put(t, other, "d/a", "2")
		written <- time.Now()
	}()
	var slow leases.Event
	isSlow := func(w *client.LeaseWatcher) {
		t.Helper()
		var told []leases.Event
		for len(told) == 0 { // a member that was behind tells that the cache's lease was granted
			told = slices.DeleteFunc(must[leases.Update](t)(w.Next(ask(t))).Events,
				func(e leases.Event) bool { return e.Kind == leases.Granted })
		}
		slow = told[0]
		if slow.Kind != leases.CacheSlow || slow.Lease.Owner != "host-1" || slow.Seq != 0 ||
			slow.Waited < time.Second || slow.Lease.ID != dead.Lease().ID() {
			t.Errorf("told %+v", slow)
		}
	}
	for _, w := range watchers {
		isSlow(w)
	}
	for _, at := range cl.endpoints() {
		isSlow(follow(at)) // who begins now is told, too
	}
	until := dead.Lease().ValidUntil()
	err := other.Revoke(ask(t), leases.Ref{ID: slow.Lease.ID})
	if err != nil && !errors.Is(err, client.ErrLeaseNotFound) { // it may expire just then
		t.Fatal(err)
	}
	if at := <-written; at.Before(until) {
		t.Errorf("written %v before the cache has ended", until.Sub(at))
	}
	put(t, other, "d/a", "3") // does not wait for anything any more
	for _, w := range watchers {
		told := make(map[leases.Kind]int)
		for n := 0; n < 2; {
			for _, e := range must[leases.Update](t)(w.Next(ask(t))).Events {
				n++
				told[e.Kind]++
			}
		}
		if told[leases.CacheSlowEnded] != 1 ||
			told[leases.Revoked]+told[leases.Expired] != 1 {
			t.Errorf("told %v", told)
		}
	}
}
