package lease

import (
	"fmt"
	"testing"
)

// standings holds the results of Changes and Standing for every lease of a model.
type standings struct {
	changes uint64
	text    string
}

// checkChanges verifies that the results of Standing change only when Changes does.
func (m *model) checkChanges() {
	for _, l := range []*Lessor{m.primary, m.follower} {
		now := standings{changes: l.Changes()}
		for id := ID(0); id <= 12; id++ {
			ttl, token, ok := l.Standing(id)
			now.text += fmt.Sprintln(id, ttl, token, ok)
		}
		was, ok := m.seen[l]
		if ok && was.changes == now.changes && was.text != now.text {
			m.failf("%d changes, but not\n%s, now\n%s", now.changes, was.text, now.text)
		}
		m.seen[l] = now
	}
}

// TestChanges checks that a recovery counts as a change, but a renewal or a clock advance does not.
func TestChanges(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 1, TTL: 5000})
	v := l.View()
	state := v.State()
	for info := range v.All() {
		state.Leases = append(state.Leases, info)
	}
	l.Promote(1)
	before := l.Changes()
	if _, err := l.Renew(1, 0); err != nil {
		t.Fatal(err)
	}
	l.Advance(100)
	if got := l.Changes(); got != before {
		t.Errorf("%d changes by a renewal", got-before)
	}
	l.Demote()
	if err := l.Recover(state); err != nil {
		t.Fatal(err)
	}
	if got := l.Changes(); got == before {
		t.Error("a recovery is no change")
	}
}
