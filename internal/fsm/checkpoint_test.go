package fsm

import (
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// silences tells what happened after the entry of an index.
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

// Told of are leases that are silent, and those that were heard again in whatever way; not leases
// that were not silent, are delayed, or changed meanwhile, nor what an earlier leader says.
func TestSilences(t *testing.T) {
	m := New(Config{})
	tokens := map[lease.ID]lease.Token{}
	for id := range lease.ID(7) {
		tokens[id+1] = grant(t, m, id+1)
	}
	delayed := terms(8, "")
	delayed.LockDelay = 1000
	tokens[8] = mustApply(t, m, &Grant{Terms: delayed}).(*lease.Info).Token
	expire(t, m, 8)
	checkpoint := func(remaining lease.TTL, stamp uint64, ids ...lease.ID) {
		t.Helper()
		c := &Checkpoint{Term: m.term}
		for _, id := range ids {
			c.Leases = append(c.Leases, lease.Checkpoint{
				ID: id, Token: tokens[id], Remaining: remaining, Stamp: stamp,
			})
		}
		apply(t, m, c)
	}
	m.Lessor().Advance(100)
	start := m.Index()
	checkpoint(50, 0, 1, 2, 3, 4, 5, 8, 99)
	checkpoint(50, 77, 6) // it was another then
	if r := apply(t, m, &Checkpoint{Term: 99}); r.Err == nil {
		t.Error("another term's checkpoint was applied")
	}
	want := []string{
		"1 until 151", "2 until 151", "3 until 151", "4 until 151", "5 until 151",
	}
	if got := silences(t, m, start); !slices.Equal(got, want) {
		t.Errorf("silent are %q, want %q", got, want)
	}
	start = m.Index()
	checkpoint(0, 0, 1)
	mustApply(t, m, &ChangeTTL{ID: 2, Token: tokens[2], TTL: 70})
	mustApply(t, m, &HandOver{ID: 3, Token: tokens[3]})
	mustApply(t, m, &Txn{Then: []Op{{Touch: &Touch{ID: 4}}, {Touch: &Touch{ID: 7}}}})
	mustApply(t, m, &Revoke{ID: 5})
	want = []string{"1 until 0", "2 until 0", "3 until 0", "4 until 0"}
	if got := silences(t, m, start); !slices.Equal(got, want) {
		t.Errorf("heard were %q, want %q", got, want)
	}
	start = m.Index()
	checkpoint(40, 0, 1)
	checkpoint(30, 0, 1)
	want = []string{"1 until 141", "1 until 131 again"}
	if got := silences(t, m, start); !slices.Equal(got, want) {
		t.Errorf("silent are %q, want %q", got, want)
	}
	if n := m.Stats().Checkpointed; n != 7 {
		t.Errorf("%d checkpoints are counted, want 7", n)
	}
}

// What is not kept is known not to be: who comes after a restart, or too late, looks at
// the leases.
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
