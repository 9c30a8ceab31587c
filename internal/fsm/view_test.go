package fsm

import "testing"

// A view finds its members by ID, and only those.
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
