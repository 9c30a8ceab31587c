package fsm

import (
	"encoding/binary"
	"fmt"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/lease"
)

// A command names a lease by its ID, by its name, or by both. A name is looked up when the
// command is applied, never before: until then the name may have gone to another lease.

// An UnnamedError refuses a command that names a lease by its name: no lease has the name or, if
// ID is not 0, the lease ID does not. It is lease.ErrNotFound.
type UnnamedError struct {
	Name string
	ID   lease.ID
}

// Error says which name stands for no lease.
func (e *UnnamedError) Error() string {
	if e.ID == 0 {
		return fmt.Sprintf("%v: no lease has the name %q", lease.ErrNotFound, e.Name)
	}
	return fmt.Sprintf("%v: lease %016x does not have the name %q",
		lease.ErrNotFound, e.ID, e.Name)
}

// Unwrap returns lease.ErrNotFound.
func (e *UnnamedError) Unwrap() error { return lease.ErrNotFound }

// meant returns the lease that is named by an ID, 0 for none, by a name, or by both. The lease of
// an ID alone need not exist.
func (m *Machine) meant(id lease.ID, name string) (lease.ID, error) {
	if name == "" {
		return id, nil
	}
	holder, _ := m.lessor.ByName(name)
	return checkNamed(id, name, holder.ID)
}

// checkNamed returns the lease that has a name, unless it is none, or another than that of the ID.
func checkNamed(id lease.ID, name string, holder lease.ID) (lease.ID, error) {
	if holder == 0 || id != 0 && id != holder {
		return 0, &UnnamedError{Name: name, ID: id}
	}
	return holder, nil
}

// meant is Machine.meant for an operation of a transaction: those before it may have granted
// the lease, or ended it.
func (f *forecast) meant(id lease.ID, name string) (lease.ID, error) {
	id = f.repeated.actual(id)
	if name == "" {
		return id, nil
	}
	terms, known := f.names[name]
	if !known {
		return f.m.meant(id, name)
	}
	if terms == nil {
		terms = &lease.Terms{}
	}
	return checkNamed(id, name, terms.ID)
}

// meant is forecast.meant for an operation that has passed it.
func (r *run) meant(id lease.ID, name string) lease.ID {
	if name == "" {
		return r.repeated.actual(id)
	}
	holder, _ := r.m.lessor.ByName(name)
	return holder.ID
}

// hasToken reports whether a token, if it is not 0, is that of a lease.
func (m *Machine) hasToken(id lease.ID, t lease.Token) bool {
	if t == 0 {
		return true
	}
	info, ok := m.lessor.Lookup(id)
	return ok && info.Token == t
}

// nameIn returns where a command has the name of the lease that it is about, and the token if that
// is new with names, too; nil for none.
func nameIn(c Command) (*string, *lease.Token) {
	switch c := c.(type) {
	case *Put:
		return &c.LeaseName, &c.LeaseToken
	case *Revoke:
		return &c.Name, nil
	case *ChangeTTL:
		return &c.Name, nil
	case *HandOver:
		return &c.Name, nil
	case *Resume:
		return &c.Name, nil
	default:
		return nil, nil
	}
}

// nameInOp is nameIn for an operation.
func nameInOp(o *Op) (*string, *lease.Token) {
	switch {
	case o.Put != nil:
		return nameIn(o.Put)
	case o.Revoke != nil:
		return nameIn(o.Revoke)
	case o.Touch != nil:
		return &o.Touch.Name, nil
	default:
		return nil, nil
	}
}

// appendName appends the mark of a name with the name and the token, if there are any: what
// follows is the command, or the operation, in the form that it has without them.
func appendName(b []byte, mark byte, name *string, t *lease.Token) []byte {
	token := uint64(0)
	if t != nil {
		token = uint64(*t)
	}
	if name == nil || *name == "" && token == 0 {
		return b
	}
	return binary.AppendUvarint(encoding.AppendBytes(append(b, mark), *name), token)
}

// givenName is what stands behind the mark of a name, to be given to what follows.
type givenName struct {
	name  string
	token lease.Token
}

func (d *decoder) name() givenName {
	return givenName{name: d.Text(), token: lease.Token(d.Uvarint())}
}

func (d *decoder) give(g givenName, name *string, token *lease.Token) {
	if name == nil {
		d.Fail("name before what is about no lease")
		return
	}
	*name = g.name
	if token != nil {
		*token = g.token
	}
}

func (d *decoder) namedCommand() Command {
	g := d.name()
	if k := kind(d.Peek()); k == kindNamed || k == kindOnce {
		d.Fail("name before what may have one of its own")
		return nil
	}
	c := d.command()
	name, token := nameIn(c)
	d.give(g, name, token)
	return c
}

func (d *decoder) namedOp(o *Op, depth int) {
	g := d.name()
	if d.Peek() == opNamed {
		d.Fail("name before what has one of its own")
		return
	}
	d.op(o, depth)
	name, token := nameInOp(o)
	d.give(g, name, token)
}

// nameSize returns how many bytes appendName appends at most.
func nameSize(n *string, t *lease.Token) int {
	size := 0
	if n != nil {
		size = len(*n)
	}
	if t != nil || size > 0 {
		size += 2*textSize + 1
	}
	return size
}
