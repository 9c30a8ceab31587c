package fsm

// MinQuota is the smallest quota that works in practice. A third of it is taken up by seven members
// with their addresses, and by the sessions and results that are always kept.
const MinQuota = 32 << 10

func (m *Machine) overQuota(growth int64) bool {
	return m.meta.quota > 0 && m.bytes().Sum()+growth > m.meta.quota
}

// leastQuota returns the smallest quota of any member, or 0 if none has reported one.
func (m *Machine) leastQuota() (least int64) {
	for _, n := range m.members {
		if n.Quota > 0 && (least == 0 || n.Quota < least) {
			least = n.Quota
		}
	}
	return least
}

// Full reports whether any member has raised the NoSpace alarm.
func (v *View) Full() bool {
	for _, a := range v.Alarms {
		if a.Kind == NoSpace {
			return true
		}
	}
	return false
}

// Refuses reports whether a command is certain to fail because the NoSpace alarm is raised, so that
// it need not be proposed. A repeated command does not fail.
func (v *View) Refuses(c Command) bool {
	_, c = unwrap(c)
	switch c := c.(type) {
	case *Put:
		return v.Full()
	case *Grant:
		return c.Terms.RequestID == "" && v.Full()
	default:
		return false
	}
}
