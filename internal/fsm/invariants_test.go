package fsm

import "testing"

// TestCheckSessionsFindsFaults checks that checkSessions detects each planted fault.
func TestCheckSessionsFindsFaults(t *testing.T) {
	for name, plant := range map[string]func(l *sessions, alice *sessionOwner){
		"count":         func(_ *sessions, o *sessionOwner) { o.count++ },
		"bytes":         func(_ *sessions, o *sessionOwner) { o.bytes++ },
		"owner":         func(l *sessions, o *sessionOwner) { l.byID[1].owner = o },
		"unknown owner": func(l *sessions, o *sessionOwner) { delete(l.byUser(), o.user) },
		"left owner":    func(l *sessions, _ *sessionOwner) { l.byUser()["bob"] = new(sessionOwner) },
		"not in ring":   func(_ *sessions, o *sessionOwner) { o.root.newer.unlink() },
		"order of ring": func(_ *sessions, o *sessionOwner) {
			s := o.root.newer
			s.unlink()
			s.toFront()
		},
		"order of heap":  func(l *sessions, _ *sessionOwner) { l.owners.ranked[byCount].Swap(0, 1) },
		"place in heap":  func(_ *sessions, o *sessionOwner) { o.places[byBytes]++ },
		"length of heap": func(l *sessions, _ *sessionOwner) { l.owners.ranked[byBytes].Pop() },
	} {
		m := New(Config{})
		for i, user := range []string{"", "alice", "alice", "alice"} {
			m.sessions.open(uint64(i), user)
		}
		if err := m.checkSessions(); err != nil {
			t.Fatal(err)
		}
		plant(m.sessions, m.sessions.owners.byUser["alice"])
		if m.checkSessions() == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

func (l *sessions) byUser() map[string]*sessionOwner { return l.owners.byUser }
