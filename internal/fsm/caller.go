package fsm

import (
	"encoding/binary"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
)

// By is a command on behalf of a caller. If access control is enabled when it is applied, it is
// done only if the caller may do it then: else the result is access.ErrUserEmpty for a caller that
// has not logged in, access.ErrOldRevision for one that has to log in again, and
// access.ErrPermissionDenied. Commands that members issue themselves are never wrapped in By; a
// client's command without By counts as an anonymous caller's.
type By struct {
	Caller  access.Caller
	Command Command
}

// kind tells a user from a caller that is Bound.
func (c *By) kind() kind {
	if c.Caller.Bound != nil {
		return kindByRoles
	}
	return kindBy
}

// OnBehalf returns a command on behalf of a caller: a By, unless the command counts as an anonymous
// caller's anyway, or clients cannot ask for it.
func OnBehalf(who access.Caller, c Command) Command {
	if !c.kind().asked() || who == (access.Caller{}) && !ofMembers(c) {
		return c
	}
	return &By{Caller: who, Command: c}
}

// asked reports whether a command of this kind may be that of a By.
func (k kind) asked() bool {
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
	if !kind(d.Peek()).asked() {
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
