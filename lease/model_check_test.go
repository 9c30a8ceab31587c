package lease

import "iter"

// checkNamed compares the index of names with a scan of all leases.
func (m *model) checkNamed() {
	var want []ID
	for _, name := range []string{"x", "y"} {
		for _, l := range m.twin.leases {
			if l.Name == name {
				want = append(want, l.ID)
			}
		}
	}
	ids := func(seq iter.Seq[Info]) (out []ID) {
		for info := range seq {
			out = append(out, info.ID)
		}
		return out
	}
	v := m.follower.View()
	m.same("named", ids(m.primary.Named("")), want)
	m.same("named in a view", ids(v.Named("")), want)
	if len(want) > 0 {
		info, ok := v.ByName(m.twin.leases[want[0]].Name)
		m.same("by name in a view", []any{info.ID, ok}, []any{want[0], true})
	}
}

func (m *model) checkNext() {
	at, ok := m.primary.Next()
	want, expected := m.twin.next()
	switch {
	case expected && (!ok || at > want):
		m.failf("next is %d, %v; there is something at %d", at, ok, want)
	case ok && at <= m.twin.now && (!expected || want > m.twin.now) && !m.behind():
		m.failf("next is %d at %d, and there is nothing: the caller would spin", at, m.twin.now)
	}
}
