package fsm

import (
	"fmt"

	"leasehold.dev/lease"
)

// A command refers to a lease by its ID, by its name, or by both. A name is always resolved when
// the command is applied, because until then another lease may get the name.

// An UnnamedError means that no lease has the name given in a command. If ID is not 0, it means
// that lease ID does not have the name. It unwraps to lease.ErrNotFound.
type UnnamedError struct {
	Name string
	ID   lease.ID
}

// Error describes the name that could not be resolved.
func (e *UnnamedError) Error() string {
	if e.ID == 0 {
		return fmt.Sprintf("%v: no lease has the name %q", lease.ErrNotFound, e.Name)
	}
	return fmt.Sprintf("%v: lease %016x does not have the name %q",
		lease.ErrNotFound, e.ID, e.Name)
}

// Unwrap returns lease.ErrNotFound.
func (e *UnnamedError) Unwrap() error { return lease.ErrNotFound }

// resolve returns the lease given by an ID (0 for none), by a name, or by both. If only the ID is
// given, the lease need not exist.
func (m *Machine) resolve(id lease.ID, name string) (lease.ID, error) {
	if name == "" {
		return id, nil
	}
	holder, _ := m.lessor.ByName(name)
	return checkNamed(id, name, holder.ID)
}

// checkNamed returns the lease that holds a name. It returns an error if there is none, or if id is
// not 0 and the lease has a different ID.
func checkNamed(id lease.ID, name string, holder lease.ID) (lease.ID, error) {
	if holder == 0 || id != 0 && id != holder {
		return 0, &UnnamedError{Name: name, ID: id}
	}
	return holder, nil
}

// resolve is like Machine.resolve, for an operation of a transaction. Earlier operations may have
// granted or ended the lease.
func (v *validation) resolve(id lease.ID, name string) (lease.ID, error) {
	id = v.repeated.actual(id)
	terms, known := v.names[name]
	if !known {
		return v.m.resolve(id, name)
	}
	if terms == nil {
		terms = &lease.Terms{}
	}
	return checkNamed(id, name, terms.ID)
}

// resolve is like validation.resolve, for an operation that has been validated.
func (r *run) resolve(id lease.ID, name string) lease.ID {
	if name == "" {
		return r.repeated.actual(id)
	}
	holder, _ := r.m.lessor.ByName(name)
	return holder.ID
}

// hasToken reports whether a lease has the given token. Token 0 matches any.
func (m *Machine) hasToken(id lease.ID, t lease.Token) bool {
	if t == 0 {
		return true
	}
	info, _ := m.lessor.Lookup(id) // if there is no such lease, the token is 0
	return info.Token == t
}
