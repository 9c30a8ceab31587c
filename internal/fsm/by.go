package fsm

import (
	"encoding/binary"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// By is a command on behalf of a caller. If access control is enabled when it is applied, it is
// done only if the caller may do it then: else the result is access.ErrUserEmpty for a caller that
// has not logged in, access.ErrOldRevision for one that has to log in again, and
// access.ErrPermissionDenied. What members do by themselves is no By; a client's command that is
// none counts as that of a caller that has not logged in.
type By struct {
	Caller  access.Caller
	Command Command
}

func (*By) kind() kind { return kindBy }

// OnBehalf returns a command on behalf of a caller, a By. A change of who the members are is no By:
// whoever proposes it has to decide. Nor is what counts as that of a caller that has not logged in
// in any case.
func OnBehalf(who access.Caller, c Command) Command {
	if !c.kind().asked() || who == (access.Caller{}) && !ofMembers(c) {
		return c
	}
	return &By{Caller: who, Command: c}
}

// asked reports whether a command of this kind may be that of a By.
func (k kind) asked() bool {
	switch k {
	case kindBy, kindExpire, kindCheckpoint, kindDropOrphans,
		kindAddMember, kindRemoveMember, kindPromoteMember:
		return false
	default:
		return true
	}
}

func appendBy(b []byte, c *By) []byte {
	b = encoding.AppendBytes(b, c.Caller.User)
	return AppendCommand(binary.AppendUvarint(b, c.Caller.Revision), c.Command)
}

func (d *decoder) by() Command {
	c := &By{Caller: access.Caller{User: d.Text(), Revision: d.Uvarint()}}
	if k := kind(d.Peek()); k <= kindLast && !k.asked() {
		d.Fail("a command that nobody asks for")
		return nil
	}
	c.Command = d.command()
	return c
}

// unwrap returns who asks for a command, and the command.
func unwrap(c Command) (access.Caller, Command) {
	if by, ok := c.(*By); ok {
		return by.Caller, by.Command
	}
	return access.Caller{}, c
}

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

// ofMembers reports whether members give a command by themselves.
func ofMembers(c Command) bool { _, compacts := c.(*Compact); return compacts || !fromClient(c) }

// permit says why a caller may not do a command now, nil if it may. The rules are those of etcd,
// but that a lease is granted only to those who have logged in, and that names and owners of
// leases, which etcd does not have, are root's.
func (m *Machine) permit(who access.Caller, c Command) error {
	switch c := c.(type) {
	case *Once:
		return m.permit(who, c.Command)
	case *Put, *DeleteRange, *Txn, *Grant, *Revoke, *OpenSession:
		if err := m.meta.access.CheckKnown(who); err != nil {
			return err
		}
	default:
		return m.meta.access.CheckRoot(who)
	}
	p := &permission{access: m.meta.access, lessor: m.lessor, who: who}
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
		return p.revoke(c)
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
	lessor *lease.Lessor // nil for what only reads
	who    access.Caller
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

// lease needs write on all keys of a lease to change what it has or to end it: as in etcd, whoever
// could attach a key to the lease of another could let that key live, or end its lease. A name of
// a lease is root's. A transaction looks at the keys of each lease once, and is refused if they are
// too many.
func (p *permission) lease(id lease.ID, name string) error {
	if p.access.IsRoot(p.who) {
		return nil
	}
	if name != "" {
		return access.ErrPermissionDenied
	}
	if p.leases != nil {
		if _, ok := p.leases[id]; ok {
			return nil
		}
		p.leases[id] = struct{}{}
		if p.keys += p.lessor.KeyCount(id); p.keys > applyWork {
			return ErrTxnTooLarge
		}
	}
	for key := range p.lessor.EachKey(id) {
		if err := p.check(access.Write, key, ""); err != nil {
			return err
		}
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

// grant needs no right to keys, but that of root to a name, and to another owner than the caller;
// to hold ranges for a cache it needs read on them.
func (p *permission) grant(c *Grant) error {
	root := p.access.IsRoot(p.who)
	if t := &c.Terms; !root && (t.Name != "" || t.Owner != "" && t.Owner != p.who.User) {
		return access.ErrPermissionDenied
	}
	for _, r := range c.Holds {
		if err := p.access.Check(p.who, access.Read, r); err != nil {
			return err
		}
	}
	return nil
}

func (p *permission) revoke(c *Revoke) error { return p.lease(c.ID, c.Name) }

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

// compare needs read on the keys. One that names a lease by its name is root's.
func (p *permission) compare(c *Compare) error {
	switch c.Target {
	case TargetLeaseAlive:
		return nil
	case TargetNameToken:
		return p.lease(0, c.Key)
	case TargetLeaseName:
		if err := p.lease(0, string(c.Value)); err != nil {
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
		return p.revoke(op.Revoke)
	case op.Touch != nil && op.Touch.Name != "":
		return p.lease(op.Touch.ID, op.Touch.Name)
	default: // Draw, and Touch of an ID
		return nil
	}
}
