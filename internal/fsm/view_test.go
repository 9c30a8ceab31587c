package fsm

import (
	"testing"

	"leasehold.dev/lease"
)

// TestLeaseNews checks that LeaseNews reports a grant or a newly silent lease, but not changes to
// keys.
func TestLeaseNews(t *testing.T) {
	m := New(Config{})
	token := grant(t, m, 1)
	for _, c := range []struct {
		c    Command
		want bool
	}{
		{&Put{Key: "k"}, false},
		{&Grant{Terms: lease.Terms{ID: 2, TTL: 5000}}, true},
		{&Checkpoint{Term: 1, Leases: []lease.Checkpoint{{ID: 1, Token: token, Remaining: 5}}}, true},
	} {
		old := m.View()
		mustApply(t, m, c.c)
		if m.View().LeaseNews(old) != c.want || m.View().LeaseNews(m.View()) {
			t.Errorf("%T: news %v", c.c, !c.want)
		}
	}
}

// TestViewStays checks that a view is reused while nothing changes, and that unchanged parts are
// always reused.
func TestViewStays(t *testing.T) {
	m := New(Config{})
	m.AddMember(Member{ID: 1})
	v := m.View()
	if m.View() != v {
		t.Error("another view of the same")
	}
	mustApply(t, m, &Put{Key: "k"})
	if next := m.View(); next == v || &next.Members[0] != &v.Members[0] {
		t.Error("the same view, or another list of members")
	}
}
