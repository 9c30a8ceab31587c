package fsm

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// denied returns an error if the caller is not permitted to issue a command.
func (m *Machine) denied(c Command) error {
	if !m.meta.access.Enabled() {
		return nil
	}
	by, ok := c.(*By)
	switch {
	case ok:
		return m.permit(by.Caller, by.Command)
	case fromMembers(c):
		return nil
	default:
		return m.permit(access.Caller{}, c)
	}
}

// fromMembers reports whether commands of this type are issued by members themselves.
func fromMembers(c Command) bool {
	_, compacts := c.(*Compact)
	return compacts || !fromClient(c) && !Membership(c)
}

// permit returns an error if a caller is not currently permitted to issue a command. The rules are
// etcd's, except that only callers that have logged in can be granted leases. etcd has no leases
// with names or principals; access.State.CheckLease has the rules for those.
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

// Permit returns an error if a caller is not permitted to run a read-only transaction on this
// state. The error is access.ErrUserEmpty, access.ErrOldRevision or access.ErrPermissionDenied.
func (v *View) Permit(who access.Caller, t *Txn) error {
	if !v.Access.Enabled() {
		return nil
	}
	if err := v.Access.CheckKnown(who); err != nil {
		return err
	}
	return (&permission{access: v.Access, who: who}).txn(t)
}

// permission checks the parts of a command from an authenticated caller.
type permission struct {
	access *access.State
	// lessor and writers are nil for read-only transactions.
	lessor  *lease.Lessor
	writers *keyWriters
	who     access.Caller
	// leases contains the leases whose keys have been checked for a transaction, and keys is the
	// total number of those keys: see keysOf. For other commands, leases is nil.
	leases map[lease.ID]struct{}
	keys   int
}

func (p *permission) check(what access.Kind, key, end string) error {
	return p.access.Check(p.who, what, keyrange.Range{Key: key, End: end})
}

// put requires Write on the key, Read if PrevKV is set, and permission to attach the key to its
// lease.
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

// lease requires Hold, which permits attaching keys to a lease, renewing it and ending it: see
// Authorizer.MayTouch.
func (p *permission) lease(id lease.ID, name string) error {
	of, _ := p.resolve(id, name)
	if of != (access.Lease{}) {
		return p.checkHold(of, name)
	}
	return Authorizer{p.access, p.who}.MayTouch(access.Hold, of, func(access.Kind) error {
		return p.keysOf(id)
	})
}

// keysOf requires Write on all keys of a lease. A transaction checks the keys of each lease once,
// and is rejected if there are too many.
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

// checkHold requires Hold on a lease that a command identifies by its name, or by its ID if name is
// "".
func (p *permission) checkHold(of access.Lease, name string) error {
	if name != "" {
		return p.access.CheckNamed(p.who, access.Hold, of)
	}
	return p.access.CheckLease(p.who, access.Hold, of)
}

// resolve returns the name and principal of the lease that a command refers to. If the lease does
// not exist, ok is false. In that case, the same transaction may grant the lease, so it is treated
// as the caller's.
func (p *permission) resolve(id lease.ID, name string) (of access.Lease, ok bool) {
	if name != "" {
		if info, ok := p.lessor.ByName(name); ok {
			return BelongsTo(&info), true
		}
	} else if name, principal, ok := p.lessor.Whose(id); ok {
		return access.Lease{Name: name, Principal: principal}, true
	}
	return access.Lease{Name: name, Principal: p.who.User}, false
}

// held requires Hold on a lease. A lease that has neither a principal nor a name belongs to root.
func (p *permission) held(id lease.ID, name string) error {
	of, _ := p.resolve(id, name)
	return p.checkHold(of, name)
}

// checkSee requires See on the lease with the given name, whether or not it exists.
func (p *permission) checkSee(name string) error {
	of, ok := p.resolve(0, name)
	if !ok {
		of.Principal = ""
	}
	return p.access.CheckNamed(p.who, access.See, of)
}

// handOver has the same requirements as held. A lease whose principal changes counts toward the new
// principal's limits without that principal's consent. So the caller must also be permitted to
// grant a lease to the new principal, and the new principal must be permitted to hold it. If that
// principal is not a user, its permissions are known only if it is the caller.
func (p *permission) handOver(c *HandOver) error {
	if err := p.held(c.ID, c.Name); err != nil || c.Principal == "" {
		return err
	}
	of, _ := p.resolve(c.ID, c.Name)
	to := access.Lease{Name: of.Name, Principal: c.Principal}
	if err := p.access.CheckGrant(p.who, to); err != nil || c.Principal == p.who.User {
		return err
	}
	if !p.access.MayHold(c.Principal, of.Name) {
		return access.ErrPermissionDenied
	}
	return nil
}

// delete requires Write on the range, and Read if PrevKV is set.
func (p *permission) delete(c *DeleteRange) error {
	if err := p.check(access.Write, c.Key, c.End); err != nil || !c.PrevKV {
		return err
	}
	return p.check(access.Read, c.Key, c.End)
}

// grant requires Hold on the name, if there is one, or Manage if the lease will belong to another
// principal. It also requires Read on the ranges that the lease holds for a cache.
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

// txn requires the permissions for its conditions and for the operations of all branches, no matter
// which branch runs.
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

// compare requires Read on the keys, and See on a lease that the condition refers to by name.
// Whether a lease with a given ID is alive is not secret.
func (p *permission) compare(c *Compare) error {
	switch c.Target {
	case TargetLeaseAlive:
		return nil
	case TargetNameToken:
		return p.checkSee(c.Key)
	case TargetLeaseName:
		if err := p.checkSee(string(c.Value)); err != nil {
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
