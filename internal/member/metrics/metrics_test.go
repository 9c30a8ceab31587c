package metrics

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// TestSlowCaches checks that slow caches are named in the log and, up to a limit, in a metric.
func TestSlowCaches(t *testing.T) {
	var text bytes.Buffer
	m := New(slog.New(slog.NewTextHandler(&text, nil)))
	for i := range maxOwners + 10 {
		info := lease.Info{Terms: lease.Terms{ID: 7, Owner: fmt.Sprint("host-", i)}}
		m.Step(&replica.Output{
			CacheWaits: replica.CacheWaits{
				Waits:    []lease.TTL{3},
				WereSlow: []replica.SlowCache{{Lease: info, Waited: 1500}},
			},
		})
	}
	all, err := m.Registry.Gather()
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

// TestManySlowCaches covers many caches that are slow at the same time. All are counted, some are
// named in the log, and the log states the number of others.
func TestManySlowCaches(t *testing.T) {
	var text bytes.Buffer
	m := New(slog.New(slog.NewTextHandler(&text, nil)))
	var out replica.Output
	for i := range maxNamed + 30 {
		info := lease.Info{Terms: lease.Terms{ID: lease.ID(i + 1), Owner: "host"}}
		out.WereSlow = append(out.WereSlow, replica.SlowCache{Lease: info, Waited: 1500})
	}
	m.Step(&out)
	all, err := m.Registry.Gather()
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

func TestRaised(t *testing.T) {
	alarms := []fsm.Alarm{{Member: 1, Kind: fsm.Corrupt}}
	if !raised(alarms, fsm.Corrupt) || raised(alarms, fsm.NoSpace) {
		t.Error("the wrong alarm is raised")
	}
}
