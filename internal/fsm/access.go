package fsm

import (
	"encoding/binary"
	"fmt"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
)

// These commands change users and roles. They return the errors of access.State.
type (
	// AuthEnable enables access control.
	AuthEnable struct{}
	// AuthDisable disables access control.
	AuthDisable struct{}
	// UserAdd adds a user. Hash is the hash of the password. It is empty if NoPassword is set.
	UserAdd struct {
		Name       string
		Hash       []byte
		NoPassword bool
	}
	// UserDelete deletes a user.
	UserDelete struct{ Name string }
	// UserPassword replaces the password hash of a user.
	UserPassword struct {
		Name string
		Hash []byte
	}
	// UserGrantRole grants a role to a user.
	UserGrantRole struct{ User, Role string }
	// UserRevokeRole revokes a role from a user.
	UserRevokeRole struct{ User, Role string }
	// RoleAdd adds a role.
	RoleAdd struct{ Name string }
	// RoleDelete deletes a role.
	RoleDelete struct{ Name string }
	// RoleGrant grants a permission to a role.
	RoleGrant struct {
		Role       string
		Permission access.Permission
	}
	// RoleRevoke removes a permission from a role. The permission must be for exactly the range
	// [Key, End): a range of lease names if Names is set, and of keys otherwise.
	RoleRevoke struct {
		Role, Key, End string
		Names          bool
	}
)

func (*AuthEnable) kind() kind     { return kindAuthEnable }
func (*AuthDisable) kind() kind    { return kindAuthDisable }
func (*UserAdd) kind() kind        { return kindUserAdd }
func (*UserDelete) kind() kind     { return kindUserDelete }
func (*UserPassword) kind() kind   { return kindUserPassword }
func (*UserGrantRole) kind() kind  { return kindUserGrantRole }
func (*UserRevokeRole) kind() kind { return kindUserRevokeRole }
func (*RoleAdd) kind() kind        { return kindRoleAdd }
func (*RoleDelete) kind() kind     { return kindRoleDelete }
func (*RoleGrant) kind() kind      { return kindRoleGrant }
func (*RoleRevoke) kind() kind     { return kindRoleRevoke }

// RevokesPermissions reports whether a command can take permissions away from a user or end the
// user's logins. Before such a command is applied, caches must drop everything, just as before a
// write to all keys.
func RevokesPermissions(c Command) bool {
	switch Inner(c).(type) {
	case *AuthEnable, *UserDelete, *UserRevokeRole, *RoleDelete, *RoleGrant, *RoleRevoke,
		*UserPassword:
		return true
	default:
		return false
	}
}

// changesAccess reports whether commands of this kind change users, roles or limits.
func (k kind) changesAccess() bool {
	return kindAuthEnable <= k && k <= kindRoleRevoke || k == kindSetLimits
}

func (m *Machine) applyAccess(c Command) error {
	growth := accessGrowth(c)
	if c, ok := c.(*UserPassword); ok {
		u, _ := m.meta.access.User(c.Name)
		growth -= int64(len(u.Hash)) // the new hash replaces it
	}
	if err := m.checkCost(Cost{Bytes: growth}); err != nil {
		return err
	}
	s, err := changeAccess(m.meta.access, c)
	if err != nil {
		return err
	}
	if m.meta.access.Enabled() && !s.Enabled() {
		m.dropTokenKeys()
	}
	m.meta.access, m.meta.changed = s, true
	return nil
}

// dropTokenKeys removes the token keys of all members, which invalidates every token issued so far.
func (m *Machine) dropTokenKeys() {
	for _, n := range m.members {
		n.TokenKey = ""
		m.AddMember(n)
	}
}

func changeAccess(s *access.State, c Command) (*access.State, error) {
	switch c := c.(type) {
	case *AuthEnable:
		return s.Enable()
	case *AuthDisable:
		return s.Disable(), nil
	case *UserAdd:
		return s.AddUser(c.Name, c.Hash, c.NoPassword)
	case *UserDelete:
		return s.DeleteUser(c.Name)
	case *UserPassword:
		return s.SetPassword(c.Name, c.Hash)
	case *UserGrantRole:
		return s.GrantRole(c.User, c.Role)
	case *UserRevokeRole:
		return s.RevokeRole(c.User, c.Role)
	case *RoleAdd:
		return s.AddRole(c.Name)
	case *RoleDelete:
		return s.DeleteRole(c.Name)
	case *RoleGrant:
		return s.Grant(c.Role, c.Permission)
	case *SetLimits:
		return s.SetLimits(c.Of, c.List)
	case *RoleRevoke:
		if of := (keyrange.Range{Key: c.Key, End: c.End}); c.Names {
			return s.RevokeNames(c.Role, of)
		} else {
			return s.Revoke(c.Role, of)
		}
	default:
		panic("fsm: not an access control command")
	}
}

// accessGrowth returns an upper bound on how many bytes a command that changes users and roles can
// add to the state.
func accessGrowth(c Command) int64 {
	switch c := c.(type) {
	case *UserAdd:
		u := access.User{Name: c.Name, Hash: c.Hash}
		return u.Bytes()
	case *UserPassword:
		return int64(len(c.Hash))
	case *UserGrantRole:
		with, without := access.User{Roles: []string{c.Role}}, access.User{}
		return with.Bytes() - without.Bytes()
	case *RoleAdd:
		r := access.Role{Name: c.Name}
		return r.Bytes()
	case *RoleGrant:
		with := access.Role{Permissions: []access.Permission{c.Permission}}
		without := access.Role{}
		return with.Bytes() - without.Bytes()
	default: // SetLimits: its growth is bounded by the number of users and roles
		return 0
	}
}

// appendAccess appends a command that changes users and roles.
func appendAccess(b []byte, c Command) []byte {
	switch c := c.(type) {
	case *AuthEnable, *AuthDisable:
		return b
	case *UserAdd:
		return appendUserAdd(b, c)
	case *UserDelete:
		return encoding.AppendBytes(b, c.Name)
	case *UserPassword:
		return encoding.AppendBytes(encoding.AppendBytes(b, c.Name), c.Hash)
	case *UserGrantRole:
		return encoding.AppendBytes(encoding.AppendBytes(b, c.User), c.Role)
	case *UserRevokeRole:
		return encoding.AppendBytes(encoding.AppendBytes(b, c.User), c.Role)
	case *RoleAdd:
		return encoding.AppendBytes(b, c.Name)
	case *RoleDelete:
		return encoding.AppendBytes(b, c.Name)
	case *RoleGrant:
		return appendPermission(encoding.AppendBytes(b, c.Role), c.Permission)
	case *SetLimits:
		return appendSetLimits(b, c)
	case *RoleRevoke:
		b = append(b, encoding.Flag(c.Names, revokeNames))
		b = encoding.AppendBytes(encoding.AppendBytes(b, c.Role), c.Key)
		return encoding.AppendBytes(b, c.End)
	default:
		panic("fsm: not an access control command")
	}
}

// accessCommand decodes a command that changes users and roles.
func (d *decoder) accessCommand(k kind) Command {
	switch k {
	case kindAuthEnable:
		return &AuthEnable{}
	case kindAuthDisable:
		return &AuthDisable{}
	case kindUserAdd:
		return d.userAdd()
	case kindUserDelete:
		return &UserDelete{Name: d.Text()}
	case kindUserPassword:
		return &UserPassword{Name: d.Text(), Hash: d.Bytes()}
	case kindUserGrantRole:
		return &UserGrantRole{User: d.Text(), Role: d.Text()}
	case kindUserRevokeRole:
		return &UserRevokeRole{User: d.Text(), Role: d.Text()}
	case kindRoleAdd:
		return &RoleAdd{Name: d.Text()}
	case kindRoleDelete:
		return &RoleDelete{Name: d.Text()}
	case kindRoleGrant:
		return &RoleGrant{Role: d.Text(), Permission: d.permission()}
	case kindSetLimits:
		return d.setLimits()
	default:
		return &RoleRevoke{
			Names: d.Bool("a role"), Role: d.Text(), Key: d.Text(), End: d.Text(),
		}
	}
}

// userWithout is the flag of a user without a password.
const userWithout byte = 1

// revokeNames is the flag of a RoleRevoke of lease names.
const revokeNames byte = 1

func appendUserAdd(b []byte, c *UserAdd) []byte {
	b = append(b, encoding.Flag(c.NoPassword, userWithout))
	return encoding.AppendBytes(encoding.AppendBytes(b, c.Name), c.Hash)
}

func (d *decoder) userAdd() *UserAdd {
	return &UserAdd{NoPassword: d.Bool("a user"), Name: d.Text(), Hash: d.Bytes()}
}

func appendPermission(b []byte, p access.Permission) []byte {
	b = append(b, byte(p.Kind))
	return encoding.AppendBytes(encoding.AppendBytes(b, p.Key), p.End)
}

func (d *decoder) permission() access.Permission {
	k := access.Kind(d.Byte())
	if !k.Known() {
		d.Unknown("permission kind", uint64(k))
	}
	return access.Permission{Kind: k, Key: d.Text(), End: d.Text()}
}

// control is the snapshot record that says whether access control is enabled.
type control struct {
	Enabled  bool
	Revision uint64
}

// controlEnabled is set in the record if access control is enabled.
const controlEnabled byte = 1

func appendControl(b []byte, c control) []byte {
	return binary.AppendUvarint(append(b, encoding.Flag(c.Enabled, controlEnabled)), c.Revision)
}

func (d *decoder) control() control {
	c := control{Enabled: d.Bool("access control"), Revision: d.Uvarint()}
	if c.Revision == 0 {
		d.Fail("access control has no revision")
	}
	return c
}

func appendUser(b []byte, u access.User) []byte {
	b = append(b, encoding.Flag(u.NoPassword, userWithout))
	b = encoding.AppendBytes(encoding.AppendBytes(b, u.Name), u.Hash)
	return encoding.AppendList(b, u.Roles, encoding.AppendBytes[string])
}

func (d *decoder) user() access.User {
	return access.User{
		NoPassword: d.Bool("a user"), Name: d.Text(), Hash: d.Bytes(),
		Roles: encoding.List(&d.Decoder, d.Text),
	}
}

func appendRole(b []byte, r access.Role) []byte {
	return encoding.AppendList(encoding.AppendBytes(b, r.Name), r.Permissions, appendPermission)
}

func (d *decoder) role() access.Role {
	return access.Role{
		Name: d.Text(), Permissions: encoding.List(&d.Decoder, d.permission),
	}
}

// accessRecords writes the records of users and roles. It writes nothing if access control was
// never used.
func accessRecords(s *access.State, write func(tag byte, body func([]byte) []byte)) {
	if s == nil {
		return
	}
	write(tagControl, func(b []byte) []byte {
		return appendControl(b, control{s.Enabled(), s.Revision()})
	})
	for _, name := range s.Roles() {
		r, _ := s.Role(name)
		write(tagRole, func(b []byte) []byte { return appendRole(b, r) })
	}
	for _, name := range s.Users() {
		u, _ := s.User(name)
		write(tagUser, func(b []byte) []byte { return appendUser(b, u) })
	}
	for _, of := range s.LimitHolders() {
		l := s.Limits(of)
		c := &SetLimits{Of: of, List: l.Changes()}
		write(tagLimits, func(b []byte) []byte { return appendSetLimits(b, c) })
	}
}

// accessRead collects the users and roles in a snapshot.
type accessRead struct {
	control control
	users   []access.User
	roles   []access.Role
	limits  []*SetLimits
}

// take decodes one record of users and roles.
func (r *accessRead) take(tag byte, d *decoder) {
	switch {
	case tag == tagControl && r.control.Revision == 0:
		r.control = d.control()
	case r.control.Revision == 0 || tag == tagControl:
		d.Fail("users and roles must be preceded by exactly one access control record")
	case tag == tagLimits:
		r.limits = append(r.limits, d.setLimits())
	case tag == tagUser:
		r.users = append(r.users, d.user())
	default:
		r.roles = append(r.roles, d.role())
	}
}

// state returns the users and roles with their limits.
func (r *accessRead) state() (*access.State, error) {
	if r.control.Revision == 0 {
		return nil, nil
	}
	s := access.New(r.control.Enabled, r.control.Revision, r.users, r.roles)
	for _, l := range r.limits {
		with, _ := s.SetLimits(l.Of, l.List)
		if with == s { // SetLimits also returns s if there is an error
			return nil, fmt.Errorf("%w: limits for %q, which does not exist", ErrCorrupt, l.Of.Name)
		}
		s = with
	}
	return s, nil
}
