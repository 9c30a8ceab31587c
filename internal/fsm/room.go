package fsm

import (
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// When a lease that keeps its keys has ended, they take no more than they did before.
const _ = uint(lease.AttachBytes + lease.KeepBytes - mvcc.KeepSize)

// MinQuota is the least quota under which a cluster can work: seven members with their addresses
// and as many sessions and answers as are kept in any case take a third of it.
const MinQuota = 32 << 10

// Growth returns by how many bytes a command may let the state grow, at most, or 0 if it makes
// room, or needs none: then it is carried out however full the state is, though what it leaves
// behind takes some. That is a tombstone for each key that it deletes, which takes no more than
// the key did until the next compaction, and an answer of a session, which are bounded.
//
// How much a HandOver needs depends on the lease: see handsOver.
func Growth(c Command) int64 {
	switch c := Inner(c).(type) {
	case *Put:
		return c.growth()
	case *Grant:
		return c.growth()
	case *Txn:
		return max(growth(c.Then), growth(c.Else))
	default:
		return accessGrowth(c)
	}
}

func growth(ops []Op) (sum int64) {
	for i := range ops {
		switch op := &ops[i]; {
		case op.Put != nil:
			sum += op.Put.growth()
		case op.Grant != nil:
			sum += op.Grant.growth()
		case op.Txn != nil:
			sum += Growth(op.Txn)
		}
	}
	return sum
}

func (c *Put) growth() int64 {
	size := mvcc.PutSize(c.Key, c.Value)
	if c.IgnoreValue {
		size = mvcc.PutSize(c.Key, nil) + mvcc.KeepSize
	}
	if c.attaches() {
		size += lease.AttachBytes + lease.KeepBytes
	}
	return size
}

// growth is by how many bytes a put lets the state grow, at most: one that keeps the value of its
// key has it counted once more, unless its lease is another one.
func (m *Machine) growth(c *Put) int64 {
	size := c.growth()
	if c.IgnoreValue {
		if kv := m.store.Get(c.Key); kv != nil {
			size += int64(len(kv.Value))
		}
	}
	return size
}

func (c *Grant) growth() int64 { return c.Terms.Bytes() + holdSize(&c.Terms, c.Holds) }

// lacks reports whether the state may not grow by so many bytes: an alarm says that it is full, or
// it would exceed the quota. Nothing grows without having asked, and every member decides alike.
func (m *Machine) lacks(growth int64) bool {
	return growth > 0 && (m.raised(NoSpace) || m.overQuota(growth))
}

// room fails with ErrNoSpace if the state must not grow so much, and with an *access.LimitError if
// what its principal has must not.
func (m *Machine) room(growth int64, d demand) error {
	if m.lacks(growth) {
		return ErrNoSpace
	}
	return m.exceeds(d)
}

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

// Full reports whether the alarm for want of room is raised, by any member.
func (v *View) Full() bool {
	for _, a := range v.Alarms {
		if a.Kind == NoSpace {
			return true
		}
	}
	return false
}

// Refuses reports whether a command is certain to be refused for want of room while the alarm is
// raised, so that it need not stand in the log. A repetition of what was done before is not.
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
