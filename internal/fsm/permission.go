package fsm

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// denied says why a command is not done for its caller, nil if it is.
func (m *Machine) denied(c Command) error {
	if !m.meta.access.Enabled() {
		return nil
	}
	by, ok := c.(*By)
	switch {
	case ok:
		return m.permit(by.Caller, by.Command)
	case ofMembers(c):
		return nil
	default:
		return m.permit(access.Caller{}, c)
	}
}

// ofMembers reports whether members issue such commands themselves.
func ofMembers(c Command) bool {
	_, compacts := c.(*Compact)
	return compacts || !fromClient(c) && !Membership(c)
}

// permit says why a caller may not do a command now, nil if it may. The rules are those of etcd,
// but that a lease is granted only to callers that have logged in. For leases with a name or a
// principal, which etcd does not have, they are those of access.State.CheckLease.
func (m *Machine) permit(who access.Caller, c Command) error {
	switch c := c.(type) {
	case *Once:
		return m.permit(who, c.Command)
	case *Put, *DeleteRange, *Txn, *Grant, *Revoke, *ChangeTTL, *HandOver, *Resume, *OpenSession:
		if err := m.meta.access.CheckKnown(who); err != nil {
			return err
		}
	default:
		return m.meta.access.CheckRoot(who)
	}
	p := &permission{access: m.meta.access, lessor: m.lessor, writers: &m.meta.writers, who: who}
	switch c := c.(type) {
	case *Put:
		return p.put(c)
	case *DeleteRange:
		return p.delete(c)
	case *Txn:
		p.leases = make(map[lease.ID]struct{})
		return p.txn(c)
	case *Grant:
		return p.grant(c)
	case *Revoke:
		return p.lease(c.ID, c.Name)
	case *ChangeTTL:
		return p.held(c.ID, c.Name)
	case *HandOver:
		return p.handOver(c)
	case *Resume:
		return p.held(c.ID, c.Name)
	default: // OpenSession
		return nil
	}
}

// Permit says why a caller may not be told, of this state, what a transaction reads that changes
// nothing, nil if it may: access.ErrUserEmpty, access.ErrOldRevision or
// access.ErrPermissionDenied.
func (v *View) Permit(who access.Caller, t *Txn) error {
	if !v.Access.Enabled() {
		return nil
	}
	if err := v.Access.CheckKnown(who); err != nil {
		return err
	}
	return (&permission{access: v.Access, who: who}).txn(t)
}

// permission decides about the parts of a command of a caller that has logged in.
type permission struct {
	access *access.State
	// lessor and writers are nil for what only reads.
	lessor  *lease.Lessor
	writers *keyWriters
	who     access.Caller
	// leases are those of a transaction whose keys the caller may write, and keys is how many these
	// are together: see lease. Of other commands leases is nil.
	leases map[lease.ID]struct{}
	keys   int
}

func (p *permission) check(what access.Kind, key, end string) error {
	return p.access.Check(p.who, what, keyrange.Range{Key: key, End: end})
}

// put needs write on the key, read if it asks for the replaced pair, and what attach needs.
func (p *permission) put(c *Put) error {
	if err := p.check(access.Write, c.Key, ""); err != nil {
		return err
	}
	if c.PrevKV {
		if err := p.check(access.Read, c.Key, ""); err != nil {
			return err
		}
	}
	return p.lease(c.Lease, c.LeaseName)
}

// lease needs to hold a lease to change what it has, to renew or to end it: see Asker.MayTouch.
func (p *permission) lease(id lease.ID, name string) error {
	of, _ := p.meant(id, name)
	if of != (access.Lease{}) {
		return p.mine(of, name)
	}
	return Asker{p.access, p.who}.MayTouch(access.Hold, of, func(access.Kind) error {
		return p.keysOf(id)
	})
}

// keysOf needs write on all keys of a lease. A transaction looks at those of each lease once, and
// is refused if they are too many.
func (p *permission) keysOf(id lease.ID) error {
	if p.leases != nil {
		if _, ok := p.leases[id]; ok {
			return nil
		}
		p.leases[id] = struct{}{}
		if p.keys += p.lessor.KeyCount(id); p.keys > applyTime {
			return ErrTxnTooLarge
		}
	}
	return p.mayWriteAll(id)
}

// mine needs to hold a lease that a command names by a name, or with "" by its ID.
func (p *permission) mine(of access.Lease, name string) error {
	if name != "" {
		return p.access.CheckNamed(p.who, access.Hold, of)
	}
	return p.access.CheckLease(p.who, access.Hold, of)
}

// meant returns whose a lease is that a command names, not ok if it is not there. Then it may be
// granted by the same transaction, and so be the caller's.
func (p *permission) meant(id lease.ID, name string) (of access.Lease, ok bool) {
	if name != "" {
		if info, ok := p.lessor.ByName(name); ok {
			return BelongsTo(&info), true
		}
	} else if name, principal, ok := p.lessor.Whose(id); ok {
		return access.Lease{Name: name, Principal: principal}, true
	}
	return access.Lease{Name: name, Principal: p.who.User}, false
}

// held needs to hold the lease. One that belongs to nobody, and has no name, is root's.
func (p *permission) held(id lease.ID, name string) error {
	of, _ := p.meant(id, name)
	return p.mine(of, name)
}

// seen needs to see the lease with a name, whether there is one or not.
func (p *permission) seen(name string) error {
	of, ok := p.meant(0, name)
	if !ok {
		of.Principal = ""
	}
	return p.access.CheckNamed(p.who, access.See, of)
}

// handOver is held. A lease that goes to another principal counts for that one, which is not asked:
// so the caller needs what it needs to grant it one, and nobody is given a lease that it may not
// hold. Of a principal that is no user that is known only of the one that asks.
func (p *permission) handOver(c *HandOver) error {
	if err := p.held(c.ID, c.Name); err != nil || c.Principal == "" {
		return err
	}
	of, _ := p.meant(c.ID, c.Name)
	to := access.Lease{Name: of.Name, Principal: c.Principal}
	if err := p.access.CheckGrant(p.who, to); err != nil || c.Principal == p.who.User {
		return err
	}
	if !p.access.MayHold(c.Principal, of.Name) {
		return access.ErrPermissionDenied
	}
	return nil
}

// delete needs write on the range, and read if it asks for the deleted pairs.
func (p *permission) delete(c *DeleteRange) error {
	if err := p.check(access.Write, c.Key, c.End); err != nil || !c.PrevKV {
		return err
	}
	return p.check(access.Read, c.Key, c.End)
}

// grant needs to hold the name, if there is one, or to manage it if the lease is to belong to
// another; to hold ranges for a cache it needs read on them.
func (p *permission) grant(c *Grant) error {
	of := access.Lease{Name: c.Terms.Name, Principal: c.Terms.Principal}
	if err := p.access.CheckGrant(p.who, of); err != nil {
		return err
	}
	for _, r := range c.Holds {
		if err := p.access.Check(p.who, access.Read, r); err != nil {
			return err
		}
	}
	return nil
}

// txn needs what all its conditions and the operations of all its branches need, whichever are run.
func (p *permission) txn(c *Txn) error {
	for i := range c.Compare {
		if err := p.compare(&c.Compare[i]); err != nil {
			return err
		}
	}
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			if err := p.op(&ops[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare needs read on the keys, and to see the lease that it names by its name. Whether the lease
// of an ID is alive is no secret.
func (p *permission) compare(c *Compare) error {
	switch c.Target {
	case TargetLeaseAlive:
		return nil
	case TargetNameToken:
		return p.seen(c.Key)
	case TargetLeaseName:
		if err := p.seen(string(c.Value)); err != nil {
			return err
		}
	}
	return p.check(access.Read, c.Key, c.End)
}

func (p *permission) op(op *Op) error {
	switch {
	case op.Put != nil:
		return p.put(op.Put)
	case op.Delete != nil:
		return p.delete(op.Delete)
	case op.Range != nil:
		return p.check(access.Read, op.Range.Key, op.Range.End)
	case op.Txn != nil:
		return p.txn(op.Txn)
	case op.Grant != nil:
		return p.grant(op.Grant)
	case op.Revoke != nil:
		return p.lease(op.Revoke.ID, op.Revoke.Name)
	case op.Touch != nil:
		return p.lease(op.Touch.ID, op.Touch.Name)
	default: // Draw
		return nil
	}
}
