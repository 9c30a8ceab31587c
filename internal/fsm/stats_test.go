package fsm

import (
	"testing"

	"leasehold.dev/lease"
)

// TestStatsWithoutReplay checks that counters exclude entries that a member replays from its log at
// startup.
func TestStatsWithoutReplay(t *testing.T) {
	m := New(Config{})
	m.CountAfter(2)
	for index := range uint64(3) {
		m.Begin(index+1, 1)
		if r := m.Apply(&Grant{Terms: lease.Terms{ID: lease.ID(index + 1), TTL: 5000}}); r.Err != nil {
			t.Fatal(r.Err)
		}
		granted, replaying := m.Stats().Granted, index < 2
		if _, is := m.Replaying(); is != replaying || replaying && granted != 0 {
			t.Errorf("after entry %d: replaying %v, %d granted", index+1, is, granted)
		}
	}
	if granted := m.Stats().Granted; granted != 1 {
		t.Errorf("%d granted, want 1", granted)
	}
	if event, _ := m.Replaying(); event != 2 {
		t.Errorf("the replay ended with event %d, want 2", event)
	}
}
