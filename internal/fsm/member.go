package fsm

import "slices"

// applyMember applies a command about a member. The leader has already checked that the change is
// safe for the cluster. The checks here must give the same result on every member.
func (m *Machine) applyMember(c Command) error {
	switch c := c.(type) {
	case *SetMember:
		return m.updateMember(c.Member)
	case *AddMember:
		return m.admitMember(c.Member)
	case *RemoveMember:
		return m.expelMember(c.ID)
	case *PromoteMember:
		return m.promoteMember(c.ID)
	default:
		panic("fsm: not a membership command")
	}
}

func (m *Machine) updateMember(n Member) error {
	old, ok := m.members[n.ID]
	if !ok {
		return ErrMemberNotFound
	}
	if m.peerURLTaken(n) {
		return ErrPeerURLExists
	}
	if n.Versions.Known() {
		if !n.Versions.Has(m.version.Number) {
			return ErrVersion
		}
		old.Versions = n.Versions
	}
	if n.Incarnation != 0 {
		if old.Incarnation != 0 && old.Incarnation != n.Incarnation {
			return ErrIncarnation
		}
		old.Incarnation = n.Incarnation
	}
	if n.Quota != 0 {
		old.Quota = n.Quota
	}
	if n.TokenKey != "" {
		old.TokenKey = n.TokenKey
	}
	if n.Name != "" {
		old.Name = n.Name
	}
	if len(n.PeerURLs) > 0 {
		old.PeerURLs = n.PeerURLs
	}
	if len(n.ClientURLs) > 0 {
		old.ClientURLs = n.ClientURLs
	}
	m.AddMember(old)
	return nil
}

func (m *Machine) admitMember(n Member) error {
	_, member := m.members[n.ID]
	_, removed := m.removed[n.ID]
	switch {
	case member || removed:
		return ErrMemberExists
	case m.peerURLTaken(n):
		return ErrPeerURLExists
	case n.Versions.Known() && !n.Versions.Has(m.version.Number):
		return ErrVersion
	}
	m.AddMember(n)
	return nil
}

// peerURLTaken reports whether another member has one of n's peer URLs.
func (m *Machine) peerURLTaken(n Member) bool {
	for id, other := range m.members {
		for _, u := range n.PeerURLs {
			if id != n.ID && slices.Contains(other.PeerURLs, u) {
				return true
			}
		}
	}
	return false
}

// expelMember removes a member and the alarms that it raised, and records its ID as removed.
func (m *Machine) expelMember(id uint64) error {
	n, ok := m.members[id]
	if !ok {
		return ErrMemberNotFound
	}
	if !n.Learner && m.voters() == 1 {
		return ErrLastVoter
	}
	delete(m.members, id)
	delete(m.meta.comparison.hashes, id)
	for a := range m.alarms {
		if a.Member == id {
			delete(m.alarms, a)
		}
	}
	m.removed[id] = struct{}{}
	m.metaChange()
	return nil
}

func (m *Machine) promoteMember(id uint64) error {
	n, ok := m.members[id]
	switch {
	case !ok:
		return ErrMemberNotFound
	case !n.Learner:
		return ErrNotLearner
	}
	n.Learner = false
	m.AddMember(n)
	return nil
}

func (m *Machine) voters() (n int) {
	for _, member := range m.members {
		if !member.Learner {
			n++
		}
	}
	return n
}

// AddMember adds a member without a command: a founding member, or a member in a snapshot.
func (m *Machine) AddMember(n Member) {
	m.members[n.ID] = n
	m.metaChange()
}
