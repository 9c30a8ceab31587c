package fsm

import (
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

func (m *Machine) applyGrant(c *Grant) Result {
	if m.full() {
		return Result{Err: ErrNoSpace}
	}
	v, err := m.grant(c)
	if err != nil {
		return Result{Err: err}
	}
	return Result{Value: v}
}

// grant does a Grant, and returns what GrantResult reads.
func (m *Machine) grant(c *Grant) (any, error) {
	if err := m.checkHolds(c); err != nil {
		return nil, err
	}
	last := m.lessor.LastToken()
	info, err := m.lessor.Grant(c.Terms)
	switch {
	case err != nil:
		return nil, err
	case info.Token <= last && c.Renew:
		info, err = m.touch(info.ID, info.Token)
		return &Existing{info}, err
	case info.Token <= last:
		return &Existing{info}, nil
	}
	m.stats.Granted++
	m.holds.set(info.ID, info.Owner, c.Holds)
	m.happened(LeaseEvent{Kind: LeaseGranted, Info: info})
	if c.Terms.Bound {
		m.step.loose = append(m.step.loose, info.ID)
	}
	return &info, nil
}

func (m *Machine) applyRevoke(c *Revoke) Result {
	if err := m.checkRevoke(c); err != nil {
		return Result{Err: err}
	}
	t := m.store.Begin()
	r := m.revoke(t, c)
	m.end(t)
	return Result{Value: r}
}

func (m *Machine) checkRevoke(c *Revoke) error {
	info, ok := m.lessor.Lookup(c.ID)
	if !ok || c.Token != 0 && c.Token != info.Token {
		return lease.ErrNotFound
	}
	return nil
}

// revoke does a Revoke that checkRevoke has passed.
func (m *Machine) revoke(t *mvcc.Txn, c *Revoke) *RevokeResult {
	ended, err := m.lessor.Revoke(c.ID)
	if err != nil {
		panic("fsm: revoke of a lease that was there: " + err.Error())
	}
	m.stats.Revoked++
	m.holds.set(c.ID, ended.Info.Owner, nil)
	m.deleteKeys(t, ended.Keys, -int64(c.ID))
	m.happened(LeaseEvent{Kind: LeaseRevoked, Info: ended.Info, By: c.By})
	return &RevokeResult{Deleted: int64(len(ended.Keys))}
}

// applyLease applies a command by which a live lease changes.
func (m *Machine) applyLease(c Command) Result {
	e := LeaseEvent{Kind: LeaseTTLChanged}
	var err error
	silent := false
	switch c := c.(type) {
	case *ChangeTTL:
		silent = m.isSilent(c.ID)
		e.Info, err = m.lessor.ChangeTTL(c.ID, c.Token, c.TTL)
	case *HandOver:
		before, _ := m.lessor.Lookup(c.ID)
		silent = m.isSilent(c.ID)
		e.Kind, e.By = LeaseHandedOver, before.Owner
		if e.Info, err = m.lessor.HandOver(c.ID, c.Token, c.Owner, c.Secret); err == nil {
			m.holds.set(c.ID, before.Owner, nil)
		}
	case *Resume:
		silent = m.isSilent(c.ID)
		e.Kind = LeaseResumed
		if e.Info, err = m.lessor.Resume(c.ID, c.Secret); err == nil {
			m.holds.set(c.ID, e.Info.Owner, nil) // the new process has nothing in its cache
		}
	default:
		panic("fsm: not a command about a lease")
	}
	if err != nil {
		return Result{Err: err}
	}
	m.happened(e)
	if silent {
		m.silence(Silence{Info: e.Info})
	}
	return Result{Value: &e.Info}
}

// touch renews a lease.
func (m *Machine) touch(id lease.ID, token lease.Token) (lease.Info, error) {
	silent := m.isSilent(id)
	info, err := m.lessor.Touch(id, token)
	if err == nil && silent {
		m.silence(Silence{Info: info})
	}
	return info, err
}

// applyExpire ends the leases of one decision. The term fence makes the
// decision its own leader's (T1); the lessor drops those that have changed.
func (m *Machine) applyExpire(c *Expire) Result {
	if c.Term != m.term {
		return Result{Err: ErrStale}
	}
	for _, due := range c.Leases {
		if ended, ok := m.lessor.Expire(due); ok {
			m.expire(&ended)
		}
	}
	return Result{}
}

// expire does what the end of a lease, or the beginning of its lock delay,
// leaves to do.
func (m *Machine) expire(ended *lease.Ended) {
	m.holds.set(ended.ID, ended.Owner, nil)
	kind := LeaseExpired
	if ended.Gone && ended.Delayed {
		kind = LeaseReleased
	} else {
		m.stats.Expired++
	}
	if len(ended.Keys) > 0 {
		t := m.store.Begin()
		if ended.Keep {
			m.freeKeys(t, ended.Keys)
		} else {
			m.deleteKeys(t, ended.Keys, int64(ended.ID))
		}
		m.end(t)
	}
	m.happened(LeaseEvent{Kind: kind, Info: ended.Info})
}

// deleteKeys deletes the keys of a lease that is gone, in one revision (L6). The
// cause is what WhyDeleted reads.
func (m *Machine) deleteKeys(t *mvcc.Txn, keys []string, cause int64) {
	t.DeleteFor(keys, cause)
}

// freeKeys puts the keys of a lease that is gone as they are, on no lease.
func (m *Machine) freeKeys(t *mvcc.Txn, keys []string) {
	for _, k := range keys {
		t.Put(k, t.Get(k).Value, 0)
	}
}

// Reason says why a key was deleted.
type Reason uint8

// The reasons.
const (
	// Deleted means that a client deleted the key.
	Deleted Reason = iota
	// Expired means that the key's lease expired, or its lock delay passed.
	Expired
	// Revoked means that the key's lease was revoked.
	Revoked
)

// WhyDeleted returns the reason of a deletion, and the lease that took the key
// with it, 0 if the reason is Deleted. It is part of the history: whoever reads
// past events learns the same. An event that is no deletion has none.
func WhyDeleted(e *mvcc.Event) (Reason, lease.ID) {
	switch cause := e.KV.Lease; {
	case !e.Delete || cause == 0:
		return Deleted, 0
	case cause < 0:
		return Revoked, lease.ID(-cause)
	default:
		return Expired, lease.ID(cause)
	}
}
