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
		m.observeCaches(&replica.Output{
			CacheWaits: replica.CacheWaits{
				Waits:    []lease.TTL{3},
				WereSlow: []replica.SlowCache{{Lease: info, Waited: 1500}},
			},
		}, log)
	}
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	slow := 0.0
	for _, f := range all {
		switch f.GetName() {
		case "leasehold_caches_slow_total":
			if n := len(f.GetMetric()); n != maxOwners+1 {
				t.Errorf("%d owners", n)
			}
			for _, m := range f.GetMetric() {
				slow += m.GetCounter().GetValue()
			}
		case "leasehold_cache_wait_seconds":
			if n := f.GetMetric()[0].GetHistogram().GetSampleCount(); n != maxOwners+10 {
				t.Errorf("%d waits", n)
			}
		}
	}
	if slow != maxOwners+10 {
		t.Errorf("%v were slow", slow)
	}
	want := "lease=0000000000000007 owner=host-109 waited-ms=1500"
	if !strings.Contains(text.String(), want) {
		t.Errorf("the log does not say %q", want)
	}
}

// TestManySlowCaches: all that were slow at one time are counted, some of them are named, and the
// log says how many are not.
func TestManySlowCaches(t *testing.T) {
	m := newMetrics()
	var text bytes.Buffer
	var out replica.Output
	for i := range maxNamed + 30 {
		info := lease.Info{Terms: lease.Terms{ID: lease.ID(i + 1), Owner: "host"}}
		out.WereSlow = append(out.WereSlow, replica.SlowCache{Lease: info, Waited: 1500})
	}
	m.observeCaches(&out, slog.New(slog.NewTextHandler(&text, nil)))
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0.0
	for _, f := range all {
		if f.GetName() == "leasehold_caches_slow_total" {
			counted = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted != maxNamed+30 {
		t.Errorf("%v were slow", counted)
	}
	if n := strings.Count(text.String(), "owner=host"); n != maxNamed {
		t.Errorf("%d are named", n)
	}
	if !strings.Contains(text.String(), "more=30") {
		t.Error("the log does not say that there are more")
	}
}

// TestSlowCachesNow: followers of the events find the caches that are slow now, since when, and are
// woken when there are others, not when the same are told again.
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
