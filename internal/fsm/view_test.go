package fsm

import (
	"testing"

	"leasehold.dev/lease"
)

// TestViewMember checks that a view finds members by ID.
func TestViewMember(t *testing.T) {
	m := New(Config{})
	for _, id := range []uint64{7, 3, 5} {
		m.AddMember(Member{ID: id, Learner: id == 5})
	}
	mustApply(t, m, &RemoveMember{ID: 7})
	v := m.View()
	for id := range uint64(9) {
		got, ok := v.Member(id)
		if want := id == 3 || id == 5; ok != want || ok && got.ID != id || got.Learner != (id == 5) {
			t.Errorf("member %d: %+v, %t", id, got, ok)
		}
	}
	if _, ok := new(View).Member(1); ok {
		t.Error("an empty view has a member")
	}
}

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
