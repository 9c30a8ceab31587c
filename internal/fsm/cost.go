package fsm

import (
	"cmp"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// Cost is what a command consumes. Every bound on a command is a bound on one of these fields.
//
// Time is how long it takes a member to apply the command. It bounds the length of a step. A leader
// estimates it with [Machine.Time], and fills an entry with at most one step's worth. Apply rejects
// a transaction whose Time turns out to exceed applyTime: see meter.
//
// Bytes is the maximum growth of the state, which the quota bounds. Uses is the maximum growth of
// each principal's usage, which the limits bound. It is empty while there are no limits. Space
// freed by the command is not deducted. [Machine.checkCost] checks both fields before the command
// changes anything.
//
// Commands without Bytes are applied even if the quota is exhausted. They can still make the state
// grow, but only by the stored result of a session and by a tombstone for each deleted key. A
// tombstone is no larger than the key was, and lasts until the next compaction.
type Cost struct {
	Time  int64 // in lookups of a key
	Bytes int64
	Uses  []Use
}

// add adds the Bytes and Uses of an operation to the cost of its transaction.
func (c *Cost) add(op Cost) {
	c.Bytes += op.Bytes
	for _, u := range op.Uses {
		c.use(u)
	}
}

func (c *Cost) use(u Use) {
	for i := range c.Uses {
		if have := &c.Uses[i]; have.Principal == u.Principal {
			have.Leases += u.Leases
			have.LeaseKeys += u.LeaseKeys
			have.Bytes += u.Bytes
			return
		}
	}
	c.Uses = append(c.Uses, u)
}

// checkCost returns ErrNoSpace if the cost would exceed the quota, and an *access.LimitError if it
// would exceed a limit of a principal. All members reach the same decision.
func (m *Machine) checkCost(c Cost) error {
	if c.Bytes > 0 && (m.raised(NoSpace) || m.overQuota(c.Bytes)) {
		return ErrNoSpace
	}
	for _, u := range c.Uses {
		if err := m.checkLimits(u); err != nil {
			return err
		}
	}
	return nil
}

// Growth returns the part of Cost.Bytes that depends only on the command. It includes neither the
// growth of a lease caused by a HandOver nor a value kept by a put.
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

// When a lease with KeepKeys ends, its keys take no more space than before.
const _ = uint(lease.AttachBytes + lease.KeepBytes - mvcc.KeepSize)

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

func (c *Grant) growth() int64 { return c.Terms.Bytes() + holdSize(&c.Terms, c.Holds) }

// putCost returns the cost of a put that attaches its key to lease id, or to none if id is 0. The
// replaced pair remains in the history. A value that the put keeps is usually stored again. If the
// key moves to another lease, the value is shared instead. The exception is a key that an earlier
// put in the same transaction may already have moved (see again). See mvcc.KeepSize.
func (m *Machine) putCost(c *Put, id lease.ID, again bool) Cost {
	cost := Cost{Bytes: c.growth()}
	limited := m.meta.access.Limited()
	if !limited && !c.IgnoreValue {
		return cost
	}
	u := Use{Principal: m.meta.accounts.caller.User}
	value, attached, prev := c.Value, c.attaches(), m.store.Get(c.Key)
	if prev != nil && c.IgnoreLease {
		id, attached = lease.ID(prev.Lease), prev.Lease != 0
	}
	if prev != nil && c.IgnoreValue {
		value = prev.Value
		if again || prev.Lease == int64(id) {
			cost.Bytes += int64(len(value))
		} else if len(value) > mvcc.ShortValue && prev.Writer() == u.Principal {
			value = nil
		}
	}
	if !limited {
		return cost
	}
	u.Bytes = mvcc.PutSize(c.Key, value)
	if attached && (prev == nil || prev.Lease == 0 || prev.Writer() != u.Principal) {
		u.LeaseKeys = 1
	}
	cost.Uses = []Use{u}
	return cost
}

// grantCost returns the cost of a grant that is not a repeated request.
func (m *Machine) grantCost(c *Grant) Cost {
	cost := Cost{Bytes: c.growth()}
	if m.meta.access.Limited() {
		who := cmp.Or(c.Terms.Principal, m.meta.accounts.caller.User)
		cost.Uses = []Use{{Principal: who, Leases: 1, Bytes: c.Terms.Bytes()}}
	}
	return cost
}

// handOverCost returns the cost of a successful hand-over.
func (m *Machine) handOverCost(before lease.Info, c *HandOver) Cost {
	to, after := c.successor(before), before
	after.Owner, after.Principal, after.Secret, after.RequestID = to.Owner, to.Principal, to.Secret, ""
	cost := Cost{Bytes: after.Bytes() - before.Bytes()}
	if !m.meta.access.Limited() {
		return cost
	}
	u := Use{Principal: to.Principal, Bytes: cost.Bytes}
	on := m.lessor.Account(before.ID)
	if on != "" && to.Principal == before.Principal {
		u.Principal = on
	} else if on != to.Principal {
		u.Leases, u.Bytes = 1, after.Bytes()
	}
	cost.Uses = []Use{u}
	return cost
}
