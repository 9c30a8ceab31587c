package server

import (
	"testing"

	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// TestSlowCachesNow checks that event streams see which caches are slow and since when, and are
// woken only when the set of slow caches changes.
func TestSlowCachesNow(t *testing.T) {
	n := newLeaseNews()
	slow := func(id lease.ID, waited lease.TTL) replica.SlowCache {
		return replica.SlowCache{
			Lease: lease.Info{Terms: lease.Terms{ID: id}, Token: 1}, Waited: waited,
		}
	}
	woken := func() bool {
		select {
		case <-n.token:
			return true
		default:
			return false
		}
	}
	n.setSlow(nil, 4000)
	if woken() || n.slow.Load() != nil {
		t.Error("told of nothing")
	}
	n.setSlow([]replica.SlowCache{slow(1, 1500), slow(2, 1000)}, 5000)
	before := n.slow.Load()
	if !woken() || len(before.List) != 2 || before.List[0].Since != 3500 {
		t.Errorf("slow are %+v", before)
	}
	n.setSlow([]replica.SlowCache{slow(2, 1900), slow(1, 2400)}, 6000)
	if woken() || n.slow.Load() != before {
		t.Error("told of the same again")
	}
	other := slow(2, 1100)
	other.Lease.Token = 2
	n.setSlow([]replica.SlowCache{slow(1, 2500), other}, 6100)
	if now := n.slow.Load(); !woken() || now.List[0].Since != 3500 || now.List[1].Since != 5000 {
		t.Errorf("slow are %+v", now)
	}
	n.setSlow([]replica.SlowCache{slow(1, 2500)}, 6200)
	if now := n.slow.Load(); !woken() || len(now.List) != 1 || len(before.List) != 2 {
		t.Errorf("slow are %+v, were %+v", now, before)
	}
	n.setSlow(nil, 6300)
	if now := n.slow.Load(); !woken() || len(now.List) != 0 {
		t.Errorf("slow are %+v", now)
	}
}
