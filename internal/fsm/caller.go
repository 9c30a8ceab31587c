package fsm

import (
	"encoding/binary"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
)

// By is a command issued on behalf of a caller. If access control is enabled when the command is
// applied, the caller must have permission at that time. Otherwise the result is
// access.ErrUserEmpty for an anonymous caller, access.ErrOldRevision for a caller that must log in
// again, or access.ErrPermissionDenied. Commands that members issue themselves are never wrapped in
// By. A client's command without By is treated as an anonymous caller's.
type By struct {
	Caller  access.Caller
	Command Command
}

// kind distinguishes a caller that is a user from one with Bound roles.
func (c *By) kind() kind {
	if c.Caller.Bound != nil {
		return kindByRoles
	}
	return kindBy
}

// OnBehalf wraps a command in By. It returns the command unchanged if it would be treated the same
// way without By, or if clients cannot issue it.
func OnBehalf(who access.Caller, c Command) Command {
	if !c.kind().forClients() || who == (access.Caller{}) && !fromMembers(c) {
		return c
	}
	return &By{Caller: who, Command: c}
}

// forClients reports whether clients can issue commands of this kind. By can wrap only such
// commands.
func (k kind) forClients() bool {
	switch k {
	case kindBy, kindByRoles, kindExpire, kindCheckpoint, kindDropOrphans, kindHashState,
		kindStateHash:
		return false
	default:
		return true
	}
}

func appendBy(b []byte, c *By) []byte {
	b = encoding.AppendBytes(b, c.Caller.User)
	b = binary.AppendUvarint(b, c.Caller.Revision)
	if c.Caller.Bound != nil {
		b = encoding.AppendList(b, c.Caller.Bound.Roles, encoding.AppendBytes)
	}
	return AppendCommand(b, c.Command)
}

func (d *decoder) by(k kind) Command {
	c := &By{Caller: access.Caller{User: d.Text(), Revision: d.Uvarint()}}
	if k == kindByRoles {
		c.Caller.Bound = &access.Bound{Roles: encoding.List(&d.Decoder, d.Text)}
	}
	if !kind(d.Peek()).forClients() {
		d.Fail("a command that no client can issue")
		return nil
	}
	c.Command = d.command()
	return c
}

// unwrap returns the caller of a command, and the command without its By.
func unwrap(c Command) (access.Caller, Command) {
	if by, ok := c.(*By); ok {
		return by.Caller, by.Command
	}
	return access.Caller{}, c
}
