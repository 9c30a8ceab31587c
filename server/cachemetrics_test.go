package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// TestSlowCaches: who is slow is named in the log and, up to a bound, in a metric.
func TestSlowCaches(t *testing.T) {
	m := newMetrics()
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	for i := range maxOwners + 10 {
		info := lease.Info{Terms: lease.Terms{ID: 7, Owner: fmt.Sprint("host-", i)}}
		m.observeCaches(replica.Output{
			Waits: []lease.TTL{3},
			SlowCaches: []replica.SlowCache{{Lease: info, Waited: 1500}, {
				Lease: info, Waited: 1000, Still: true,
			}},
		}, log)
	}
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		switch f.GetName() {
		case "leasehold_caches_slow_total":
			if n := len(f.GetMetric()); n != maxOwners+1 {
				t.Errorf("%d owners", n)
			}
		case "leasehold_cache_wait_seconds":
			if n := f.GetMetric()[0].GetHistogram().GetSampleCount(); n != maxOwners+10 {
				t.Errorf("%d waits", n)
			}
		}
	}
	want := "lease=0000000000000007 owner=host-109 waited-ms=1500"
	if !strings.Contains(text.String(), want) {
		t.Errorf("the log does not say %q", want)
	}
}

// TestSlowCachesAreKept: those who follow find the last slow caches that writes wait for, each
// numbered, and are woken for them; those that were waited for are not among them.
func TestSlowCachesAreKept(t *testing.T) {
	n := newLeaseNews()
	slow := func(id lease.ID, still bool) replica.SlowCache {
		return replica.SlowCache{Lease: lease.Info{Terms: lease.Terms{ID: id}}, Still: still}
	}
	n.tellSlow([]replica.SlowCache{slow(1, false)})
	if len(n.token) != 0 || n.slow.Load() != nil {
		t.Error("what is over was told")
	}
	n.tellSlow([]replica.SlowCache{slow(1, true), slow(2, false), slow(3, true)})
	before := n.slow.Load()
	if len(n.token) != 1 || before.Last != 2 || before.List[1].Lease.ID != 3 {
		t.Errorf("kept %+v", before)
	}
	for id := range lease.ID(slowKept) {
		n.tellSlow([]replica.SlowCache{slow(id+10, true)})
	}
	now := n.slow.Load()
	if len(now.List) != slowKept || now.Last != slowKept+2 || now.List[0].Lease.ID != 10 {
		t.Errorf("kept %d, up to %d, from %d on", len(now.List), now.Last, now.List[0].Lease.ID)
	}
	if len(before.List) != 2 {
		t.Error("what somebody reads has changed")
	}
}
