package fsm

import (
	"cmp"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

func (m *Machine) applyGrant(c *Grant) Result {
	if err := m.checkGrant(c); err != nil {
		return Result{Err: err}
	}
	v, err := m.grant(c)
	if err != nil {
		return Result{Err: err}
	}
	return Result{Value: v}
}

// checkGrant returns an error if the grant would exceed the quota or a limit by creating a lease.
func (m *Machine) checkGrant(c *Grant) error {
	if err := m.checkCost(m.grantCost(c)); err != nil && !m.repeats(&c.Terms) {
		return err
	}
	return nil
}

// held returns the lease that a duplicate of the grant created earlier, if any.
func (m *Machine) held(t *lease.Terms) (held lease.Info, ok bool) {
	held, ok = m.lessor.Lookup(t.ID)
	if !ok {
		held, ok = m.lessor.ByName(t.Name)
	}
	return held, ok && t.Repeats(&held)
}

// repeats reports whether a grant is a duplicate, so that it returns an existing lease.
func (m *Machine) repeats(t *lease.Terms) bool {
	_, ok := m.held(t)
	return ok
}

// grant applies a Grant and returns a value for GrantResult.
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
	m.meta.accounts.granted(&info)
	m.holds.set(&info, c.Holds)
	m.recordEvent(LeaseEvent{Kind: LeaseGranted, Info: info})
	if c.Terms.Bound {
		m.step.unbound = append(m.step.unbound, info.ID)
	}
	return &info, nil
}

func (m *Machine) applyRevoke(c *Revoke) Result {
	id, err := m.resolve(c.ID, c.Name)
	if err == nil {
		err = m.checkRevoke(id, c.Token)
	}
	if err != nil {
		return Result{Err: err}
	}
	t := m.store.Begin()
	r := m.revoke(t, id, c.By)
	m.end(t)
	return Result{Value: r}
}

func (m *Machine) checkRevoke(id lease.ID, token lease.Token) error {
	info, ok := m.lessor.Lookup(id)
	if !ok || token != 0 && token != info.Token {
		return lease.ErrNotFound
	}
	return nil
}

// revoke revokes a lease. The command must have passed checkRevoke.
func (m *Machine) revoke(t *mvcc.Txn, id lease.ID, by string) *RevokeResult {
	ended := m.endEarly(id)
	m.deleteKeys(t, ended.Keys, -int64(id))
	m.recordEvent(LeaseEvent{Kind: LeaseRevoked, Info: ended.Info, By: by})
	return &RevokeResult{Deleted: int64(len(ended.Keys))}
}

// endEarly ends an existing lease before its expiry.
func (m *Machine) endEarly(id lease.ID) lease.Ended {
	until, _ := m.lessor.Expiry(id)
	ended, err := m.lessor.Revoke(id)
	if err != nil {
		panic("fsm: revoking an existing lease: " + err.Error())
	}
	m.stats.Revoked++
	m.meta.accounts.ended(&ended.Info, ended.Account)
	m.holds.orphan(&ended.Info, until)
	return ended
}

// applyLease applies a command that changes a live lease.
func (m *Machine) applyLease(c Command) Result {
	e := LeaseEvent{Kind: LeaseTTLChanged}
	id, err := m.subject(c)
	if err != nil {
		return Result{Err: err}
	}
	before, there := m.lessor.Lookup(id)
	until, _ := m.lessor.Expiry(id)
	silent := m.isSilent(id)
	if c, ok := c.(*HandOver); ok && there && c.Token == before.Token && !before.Delayed {
		if err := m.checkCost(m.handOverCost(before, c)); err != nil {
			return Result{Err: err}
		}
	}
	switch c := c.(type) {
	case *ChangeTTL:
		e.Info, err = m.lessor.ChangeTTL(id, c.Token, c.TTL)
	case *HandOver:
		e.Kind, e.By = LeaseHandedOver, before.Owner
		e.Info, err = m.lessor.HandOver(id, c.Token, c.successor(before))
	case *Resume:
		e.Kind = LeaseResumed
		e.Info, err = m.lessor.Resume(id, c.Secret)
	}
	if err != nil {
		return Result{Err: err}
	}
	if e.Info.Token == before.Token {
		m.holds.retime(id, before.TTL, e.Info.TTL)
	} else {
		e.Before = before.Token
		m.meta.accounts.passed(&before, &e.Info)
		m.holds.orphan(&before, until) // the new process has an empty cache
	}
	m.recordEvent(e)
	if silent {
		m.silence(Silence{Info: e.Info})
	}
	return Result{Value: &e.Info}
}

// successor returns the new owner of a lease.
func (c *HandOver) successor(l lease.Info) lease.Terms {
	return lease.Terms{
		Owner: c.Owner, Secret: c.Secret, Principal: cmp.Or(c.Principal, l.Principal),
	}
}

// subject returns the lease that a command changes. It is a helper of applyLease.
func (m *Machine) subject(c Command) (lease.ID, error) {
	switch c := c.(type) {
	case *ChangeTTL:
		return m.checkChange(c)
	case *HandOver:
		return m.resolve(c.ID, c.Name)
	case *Resume:
		return m.resolve(c.ID, c.Name)
	default:
		panic("fsm: not a command about a lease")
	}
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

// applyExpire ends the leases in an Expire. The term acts as a fence: an Expire takes effect only
// if the leader that made the decision also wrote the entry (T1). The lessor skips leases that have
// changed.
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

// expire completes the expiry of a lease, or starts its lock delay.
func (m *Machine) expire(ended *lease.Ended) {
	m.holds.set(&ended.Info, nil) // this leaves no orphan, because the holder has stopped
	kind := LeaseExpired
	if ended.Gone {
		m.meta.accounts.ended(&ended.Info, ended.Account)
	}
	if ended.Gone && ended.Delayed {
		kind = LeaseReleased
	} else {
		m.stats.Expired++
	}
	if len(ended.Keys) > 0 {
		t := m.store.Begin()
		if ended.Keep {
			m.detachKeys(t, ended.Keys)
		} else {
			m.deleteKeys(t, ended.Keys, int64(ended.ID))
		}
		m.end(t)
	}
	m.recordEvent(LeaseEvent{Kind: kind, Info: ended.Info})
}

// deleteKeys deletes the keys of a lease that has ended, in a single revision (L6). cause is what
// WhyDeleted decodes.
func (m *Machine) deleteKeys(t *mvcc.Txn, keys []string, cause int64) {
	t.DeleteFor(keys, cause)
}

// detachKeys detaches the keys of a lease that has ended, without deleting them.
func (m *Machine) detachKeys(t *mvcc.Txn, keys []string) {
	for _, k := range keys {
		t.PutAgain(k, 0)
	}
}

// Reason says why a key was deleted.
type Reason uint8

// The reasons for a deletion.
const (
	// Deleted means that a client deleted the key.
	Deleted Reason = iota
	// Expired means that the key's lease expired and its lock delay, if any, is over.
	Expired
	// Revoked means that the key's lease was revoked.
	Revoked
)

// WhyDeleted returns the reason for a deletion, and the lease whose end deleted the key. The lease
// is 0 if the reason is Deleted. The reason is part of the history, so a client that reads past
// events gets the same result. For an event that is not a deletion, WhyDeleted returns Deleted and
// 0.
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
