package fsm

import (
	"fmt"
	"testing"

	"leasehold.dev/lease"
)

// silences describes the silences recorded after the given entry.
func silences(t *testing.T, m *Machine, index uint64) []string {
	t.Helper()
	var out []string
	ok := m.View().Silences.Since(index, func(s *Silence) {
		text := fmt.Sprintf("%d until %d", s.Info.ID, s.Until)
		if s.Again {
			text += " again"
		}
		out = append(out, text)
	})
	if !ok {
		t.Errorf("what happened after entry %d is not kept", index)
	}
	return out
}

// TestSilencesKept checks that Since reports whether it is missing silences because they occurred
// before a restart or are too old. The caller must then read the leases instead.
func TestSilencesKept(t *testing.T) {
	m := New(Config{})
	token := grant(t, m, 1)
	silent := func(n lease.TTL) {
		c := lease.Checkpoint{ID: 1, Token: token, Remaining: n}
		apply(t, m, &Checkpoint{Term: m.term, Leases: []lease.Checkpoint{c}})
	}
	if at := m.silences.last(); at != 0 {
		t.Errorf("the last of none is of entry %d", at)
	}
	silent(5)
	if at := m.silences.last(); at != m.Index() {
		t.Errorf("the last is of entry %d", at)
	}
	old := m.Index() - 1
	m = restored(t, m)
	if m.View().Silences.Since(old, func(*Silence) {}) {
		t.Error("a restart keeps what was before it")
	}
	if at := m.silences.last(); at != m.Index() {
		t.Errorf("after a restart the last is of entry %d", at)
	}
	if at, ok := m.Lessor().SilentUntil(1); !ok || at != 6 {
		t.Errorf("after a restart: silent %v until %d", ok, at)
	}
	start := m.Index()
	for n := range 2 * keptSilences {
		silent(lease.TTL(n + 1))
	}
	if got := silences(t, m, m.Index()-keptSilences); len(got) != keptSilences {
		t.Errorf("%d are kept", len(got))
	}
	if m.View().Silences.Since(start, func(*Silence) {}) {
		t.Error("all are kept")
	}
}
