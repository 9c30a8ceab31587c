package fsm

// MinQuota is the least quota under which a cluster can work: seven members with their addresses
// and as many sessions and answers as are kept in any case take a third of it.
const MinQuota = 32 << 10

func (m *Machine) overQuota(growth int64) bool {
	return m.meta.quota > 0 && m.bytes().Sum()+growth > m.meta.quota
}

// leastQuota returns the smallest quota of the members, 0 if none has told one.
func (m *Machine) leastQuota() (least int64) {
	for _, n := range m.members {
		if n.Quota > 0 && (least == 0 || n.Quota < least) {
			least = n.Quota
		}
	}
	return least
}

// Full reports whether the NoSpace alarm of any member is raised.
func (v *View) Full() bool {
	for _, a := range v.Alarms {
		if a.Kind == NoSpace {
			return true
		}
	}
	return false
}

// Refuses reports whether a command is certain to be refused while the NoSpace alarm is raised, so
// that it need not be proposed. A repeated command is not.
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
