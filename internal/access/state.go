package access

import (
	"maps"
	"slices"

	"leasehold.dev/internal/keyrange"
)

// Root is the name of the user that must exist before access control can be enabled, and of the
// role that has all permissions.
const Root = "root"

// User is a user that can log in.
type User struct {
	Name string
	// Hash is the hash of the password. A user without a password has no hash, and logs in with a
	// certificate or a signed token.
	Hash       []byte
	NoPassword bool
	// Roles are sorted.
	Roles []string
}

// State is the set of all users and roles, and whether access control is enabled. It is immutable:
// methods that change something return a new State or, if there is an error, the old one. Do not
// modify what they return. A nil State has no users and no roles.
type State struct {
	enabled  bool
	revision uint64
	bytes    int64
	users    map[string]*User
	roles    map[string]*role
	limits   map[Holder]Limits // only for existing users and roles; no entry is empty; may be nil
}

// empty is the State that nil stands for.
var empty = &State{revision: 1}

// New returns a State with the given users and roles.
func New(enabled bool, revision uint64, users []User, roles []Role) *State {
	s := &State{
		enabled: enabled, revision: revision,
		users: make(map[string]*User, len(users)), roles: make(map[string]*role, len(roles)),
	}
	for _, u := range users {
		s.setUser(&u)
	}
	for _, r := range roles {
		s.setRole(newRole(r.Name, r.Permissions))
	}
	return s
}

func (s *State) orEmpty() *State {
	if s == nil {
		return empty
	}
	return s
}

// Enabled reports whether access control is enabled. While it is disabled, everything is permitted.
func (s *State) Enabled() bool { return s.orEmpty().enabled }

// Revision returns the revision of users and roles, starting at 1. It is unrelated to revisions of
// keys.
func (s *State) Revision() uint64 { return s.orEmpty().revision }

// Bytes returns the approximate memory used by the users and roles.
func (s *State) Bytes() int64 { return s.orEmpty().bytes }

// Len returns the number of users and roles.
func (s *State) Len() int { return len(s.orEmpty().users) + len(s.orEmpty().roles) }

// User returns the user with the given name, and whether it exists.
func (s *State) User(name string) (u User, ok bool) {
	if found, ok := s.orEmpty().users[name]; ok {
		return *found, true
	}
	return User{}, false
}

// Users returns the names of all users, sorted.
func (s *State) Users() []string { return slices.Sorted(maps.Keys(s.orEmpty().users)) }

// Role returns the role with the given name, and whether it exists.
func (s *State) Role(name string) (r Role, ok bool) {
	if found, ok := s.orEmpty().roles[name]; ok {
		return found.Role, true
	}
	return Role{}, false
}

// Roles returns the names of all roles, sorted.
func (s *State) Roles() []string { return slices.Sorted(maps.Keys(s.orEmpty().roles)) }

// next returns a modifiable copy of s with the next revision.
func (s *State) next() *State {
	s = s.orEmpty()
	c := &State{
		enabled: s.enabled, revision: s.revision + 1, bytes: s.bytes,
		users: maps.Clone(s.users), roles: maps.Clone(s.roles), limits: maps.Clone(s.limits),
	}
	if c.users == nil {
		c.users = make(map[string]*User)
	}
	if c.roles == nil {
		c.roles = make(map[string]*role)
	}
	return c
}

// The approximate overhead of each entry in bytes.
const (
	userBytes       = 200
	roleBytes       = 200
	permissionBytes = 150
)

// Bytes returns the approximate memory used by a user.
func (u *User) Bytes() int64 {
	n := userBytes + len(u.Name) + len(u.Hash)
	for _, r := range u.Roles {
		n += len(r) + 16
	}
	return int64(n)
}

// Bytes returns the approximate memory used by a role.
func (r *Role) Bytes() int64 {
	n := roleBytes + len(r.Name)
	for _, p := range r.Permissions {
		n += permissionBytes + 3*(len(p.Key)+len(p.End))
	}
	return int64(n)
}

func (s *State) setUser(u *User) {
	s.dropUser(u.Name)
	s.users[u.Name] = u
	s.bytes += u.Bytes()
}

func (s *State) dropUser(name string) {
	if old, ok := s.users[name]; ok {
		s.bytes -= old.Bytes()
		delete(s.users, name)
	}
}

func (s *State) setRole(r *role) {
	s.dropRole(r.Name)
	s.roles[r.Name] = r
	s.bytes += r.Bytes()
}

func (s *State) dropRole(name string) {
	if old, ok := s.roles[name]; ok {
		s.bytes -= old.Bytes()
		delete(s.roles, name)
	}
}

// Enable enables access control. The user root must exist and have the role root. As in etcd, the
// revision does not change.
func (s *State) Enable() (*State, error) {
	u, ok := s.User(Root)
	switch {
	case s.Enabled():
		return s, nil
	case !ok:
		return s, ErrRootUserNotExist
	case !slices.Contains(u.Roles, Root):
		return s, ErrRootRoleNotExist
	}
	c := s.next()
	c.enabled, c.revision = true, s.Revision()
	return c, nil
}

// Disable disables access control but keeps users and roles. If it is already disabled, nothing
// changes.
func (s *State) Disable() *State {
	if !s.Enabled() {
		return s
	}
	c := s.next()
	c.enabled = false
	return c
}

// AddUser adds a user without roles. It fails with ErrUserEmpty if the name is empty, or with
// ErrUserExists.
func (s *State) AddUser(name string, hash []byte, noPassword bool) (*State, error) {
	if name == "" {
		return s, ErrUserEmpty
	}
	if _, ok := s.User(name); ok {
		return s, ErrUserExists
	}
	u := &User{Name: name, NoPassword: noPassword}
	if !noPassword {
		u.Hash = hash
	}
	c := s.next()
	c.setUser(u)
	return c, nil
}

// DeleteUser deletes a user. It fails with ErrUserNotFound, or with ErrInvalidAuthMgmt for the user
// root while access control is enabled.
func (s *State) DeleteUser(name string) (*State, error) {
	if s.Enabled() && name == Root {
		return s, rootDeleted
	}
	if _, ok := s.User(name); !ok {
		return s, ErrUserNotFound
	}
	c := s.next()
	c.dropUser(name)
	c.setLimits(Holder{OfUser, name}, Limits{})
	return c, nil
}

// SetPassword changes the password hash of a user. It fails with ErrUserNotFound. As in etcd, it
// does not give a password to a user that was added without one.
func (s *State) SetPassword(name string, hash []byte) (*State, error) {
	u, ok := s.User(name)
	if !ok {
		return s, ErrUserNotFound
	}
	if !u.NoPassword {
		u.Hash = hash
	}
	c := s.next()
	c.setUser(&u)
	return c, nil
}

// GrantRole grants a role to a user. It fails with ErrUserNotFound or ErrRoleNotFound. The role
// root need not exist. If the user already has the role, nothing changes.
func (s *State) GrantRole(name, role string) (*State, error) {
	u, ok := s.User(name)
	if !ok {
		return s, ErrUserNotFound
	}
	if _, ok := s.Role(role); !ok && role != Root {
		return s, ErrRoleNotFound
	}
	at, has := slices.BinarySearch(u.Roles, role)
	if has {
		return s, nil
	}
	u.Roles = slices.Insert(slices.Clone(u.Roles), at, role)
	c := s.next()
	c.setUser(&u)
	return c, nil
}

// RevokeRole revokes a role from a user. It fails with ErrUserNotFound or ErrRoleNotGranted, or
// with ErrInvalidAuthMgmt if both are root and access control is enabled.
func (s *State) RevokeRole(name, role string) (*State, error) {
	if s.Enabled() && name == Root && role == Root {
		return s, rootRevoked
	}
	u, ok := s.User(name)
	if !ok {
		return s, ErrUserNotFound
	}
	if !slices.Contains(u.Roles, role) {
		return s, ErrRoleNotGranted
	}
	u.Roles = without(u.Roles, role)
	c := s.next()
	c.setUser(&u)
	return c, nil
}

// without returns a copy of a list with a name removed.
func without(list []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(n string) bool { return n == name })
}

// AddRole adds a role without permissions. It fails with ErrRoleEmpty if the name is empty, or with
// ErrRoleExists.
func (s *State) AddRole(name string) (*State, error) {
	if name == "" {
		return s, ErrRoleEmpty
	}
	if _, ok := s.Role(name); ok {
		return s, ErrRoleExists
	}
	c := s.next()
	c.setRole(newRole(name, nil))
	return c, nil
}

// DeleteRole deletes a role and revokes it from all users. It fails with ErrRoleNotFound, or with
// ErrInvalidAuthMgmt for the role root while access control is enabled.
func (s *State) DeleteRole(name string) (*State, error) {
	if s.Enabled() && name == Root {
		return s, roleDeleted
	}
	if _, ok := s.Role(name); !ok {
		return s, ErrRoleNotFound
	}
	c := s.next()
	c.dropRole(name)
	c.setLimits(Holder{OfRole, name}, Limits{})
	for _, u := range s.users {
		if slices.Contains(u.Roles, name) {
			changed := *u
			changed.Roles = without(u.Roles, name)
			c.setUser(&changed)
		}
	}
	return c, nil
}

// Grant grants a permission to a role, replacing an existing permission on the same range. It fails
// with ErrInvalidAuthMgmt if the permission is invalid, or with ErrRoleNotFound. If the role
// already has exactly this permission, nothing changes.
func (s *State) Grant(name string, p Permission) (*State, error) {
	switch {
	case p.Key == "":
		return s, noKey
	case !p.Kind.Known():
		return s, unknownKind
	case p.Range().Empty():
		return s, emptyRange
	}
	r, ok := s.Role(name)
	if !ok {
		return s, ErrRoleNotFound
	}
	list := slices.Clone(r.Permissions)
	at, has := slices.BinarySearchFunc(list, p, Permission.compare)
	switch {
	case has && list[at] == p:
		return s, nil
	case has:
		list[at] = p
	default:
		list = slices.Insert(list, at, p)
	}
	c := s.next()
	c.setRole(newRole(name, list))
	return c, nil
}

// Revoke revokes the permission on exactly this range of keys from a role. It fails with
// ErrRoleNotFound or ErrPermissionNotGranted.
func (s *State) Revoke(name string, of keyrange.Range) (*State, error) {
	return s.revoke(name, Permission{Read, of.Key, of.End})
}

// RevokeNames is like Revoke, but for a range of lease names.
func (s *State) RevokeNames(name string, of keyrange.Range) (*State, error) {
	return s.revoke(name, Permission{See, of.Key, of.End})
}

// revoke removes from a role the permission that of would replace if it were granted.
func (s *State) revoke(name string, of Permission) (*State, error) {
	r, ok := s.Role(name)
	if !ok {
		return s, ErrRoleNotFound
	}
	list := slices.DeleteFunc(slices.Clone(r.Permissions), func(p Permission) bool {
		return p.compare(of) == 0
	})
	if len(list) == len(r.Permissions) {
		return s, ErrPermissionNotGranted
	}
	c := s.next()
	c.setRole(newRole(name, list))
	return c, nil
}
