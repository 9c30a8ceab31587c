package sim

import (
	"maps"
	"reflect"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// modelRights models permissions in the simplest possible form. It shares only errors and command
// types with package access. Models share it, so every change is made to a copy.
type modelRights struct {
	enabled  bool
	revision uint64
	users    map[string][]string // roles by user
	roles    map[string][]access.Permission
}

func newRights() *modelRights { return &modelRights{revision: 1} }

func (r *modelRights) equal(o *modelRights) bool { return r == o || reflect.DeepEqual(r, o) }

// next returns a copy for the caller to change.
func (r *modelRights) next() *modelRights {
	c := &modelRights{
		enabled: r.enabled, revision: r.revision + 1,
		users: maps.Clone(r.users), roles: maps.Clone(r.roles),
	}
	if c.users == nil {
		c.users, c.roles = make(map[string][]string), make(map[string][]access.Permission)
	}
	return c
}

// rolesOf returns the roles of an authenticated caller, or the reason why authentication fails.
func (r *modelRights) rolesOf(who access.Caller) ([]string, error) {
	roles, user := r.users[who.User]
	switch {
	case who.Revision == 0:
		return nil, access.ErrUserEmpty
	case who.Revision < r.revision:
		return nil, access.ErrOldRevision
	case user == (who.Bound != nil):
		return nil, access.ErrPermissionDenied
	case !user:
		return who.Bound.Roles, nil
	default:
		return roles, nil
	}
}

// allows reports whether a permission includes an operation.
func allows(p access.Permission, what access.Kind) bool {
	names := func(k access.Kind) bool { return k >= access.See }
	if names(p.Kind) || names(what) {
		return names(p.Kind) && names(what) && p.Kind >= what
	}
	return p.Kind == what || p.Kind == access.ReadWrite
}

// may reports whether a caller may perform an operation on all keys, or names, in [key, end). The
// answer can change only where a permission begins or ends, so it is enough to check these points.
func (r *modelRights) may(who access.Caller, what access.Kind, key, end string) bool {
	if !r.enabled {
		return true
	}
	roles, err := r.rolesOf(who)
	switch {
	case err != nil:
		return false
	case slices.Contains(roles, access.Root):
		return true
	}
	var list []access.Permission
	places := []string{key}
	for _, name := range roles {
		for _, p := range r.roles[name] {
			if !allows(p, what) {
				continue
			}
			list = append(list, p)
			after := p.End
			if after == "" {
				after = p.Key + "\x00"
			}
			for _, at := range []string{p.Key, after} {
				if at != "\x00" && end != "" && between(at, key, end) {
					places = append(places, at)
				}
			}
		}
	}
	for _, at := range places {
		has := func(p access.Permission) bool { return between(at, p.Key, p.End) }
		if !slices.ContainsFunc(list, has) {
			return false
		}
	}
	return true
}

// change performs a command that changes users and roles; ok is false for any other command.
func (r *modelRights) change(c fsm.Command) (next *modelRights, err error, ok bool) {
	n := r.next()
	switch c := c.(type) {
	case *fsm.AuthEnable:
		if n.enabled {
			return r, nil, true
		}
		n.enabled, n.revision = true, r.revision
	case *fsm.AuthDisable:
		if !n.enabled {
			return r, nil, true
		}
		n.enabled = false
	case *fsm.UserAdd:
		if _, there := r.users[c.Name]; there {
			return r, access.ErrUserExists, true
		}
		n.users[c.Name] = []string{}
	case *fsm.UserDelete:
		if _, there := r.users[c.Name]; !there {
			return r, access.ErrUserNotFound, true
		}
		delete(n.users, c.Name)
	case *fsm.RoleAdd:
		if _, there := r.roles[c.Name]; there {
			return r, access.ErrRoleExists, true
		}
		n.roles[c.Name] = []access.Permission{}
	case *fsm.UserGrantRole, *fsm.UserRevokeRole:
		return r.changeRole(n, c)
	case *fsm.RoleGrant, *fsm.RoleRevoke:
		return r.changePermission(n, c)
	default:
		return r, nil, false
	}
	return n, nil, true
}

// aboutRights reports whether a command changes users or roles.
func aboutRights(c fsm.Command) bool {
	_, _, ok := newRights().change(c)
	return ok
}

func (r *modelRights) changeRole(n *modelRights, c fsm.Command) (*modelRights, error, bool) {
	switch c := c.(type) {
	case *fsm.UserGrantRole:
		roles, there := r.users[c.User]
		_, role := r.roles[c.Role]
		switch {
		case !there:
			return r, access.ErrUserNotFound, true
		case !role && c.Role != access.Root:
			return r, access.ErrRoleNotFound, true
		case slices.Contains(roles, c.Role):
			return r, nil, true
		}
		n.users[c.User] = append(slices.Clone(roles), c.Role)
	case *fsm.UserRevokeRole:
		roles, there := r.users[c.User]
		at := slices.Index(roles, c.Role)
		switch {
		case !there:
			return r, access.ErrUserNotFound, true
		case at < 0:
			return r, access.ErrRoleNotGranted, true
		}
		n.users[c.User] = slices.Delete(slices.Clone(roles), at, at+1)
	}
	return n, nil, true
}

func (r *modelRights) changePermission(n *modelRights, c fsm.Command) (*modelRights, error, bool) {
	role, put := "", access.Permission{}
	grants := false
	switch c := c.(type) {
	case *fsm.RoleGrant:
		role, put, grants = c.Role, c.Permission, true
	case *fsm.RoleRevoke:
		role, put = c.Role, access.Permission{Key: c.Key, End: c.End}
		if c.Names {
			put.Kind = access.See
		}
	}
	list, there := r.roles[role]
	if !there {
		return r, access.ErrRoleNotFound, true
	}
	at := slices.IndexFunc(list, func(p access.Permission) bool {
		return p.Key == put.Key && p.End == put.End && (p.Kind >= access.See) == (put.Kind >= access.See)
	})
	list = slices.Clone(list)
	switch {
	case grants && at >= 0 && list[at] == put:
		return r, nil, true
	case grants && at >= 0:
		list[at] = put
	case grants:
		list = append(list, put)
	case at < 0:
		return r, access.ErrPermissionNotGranted, true
	default:
		list = slices.Delete(list, at, at+1)
	}
	n.roles[role] = list
	return n, nil, true
}

// do performs a command if its caller currently has the permission.
func (m *model) do(term uint64, who access.Caller, c fsm.Command) modelResult {
	if err := m.denies(who, c); err != nil {
		return modelResult{err: err, revision: m.revision}
	}
	return m.apply(term, c)
}

// changeRights performs a command if it changes users and roles.
func (m *model) changeRights(r *modelResult, c fsm.Command) {
	next, err, ok := m.rights.change(c)
	if !ok {
		return
	}
	switch c.(type) {
	case *fsm.UserAdd, *fsm.UserGrantRole, *fsm.RoleAdd, *fsm.RoleGrant:
		if len(m.alarms) > 0 { // the command would use space
			r.err = fsm.ErrNoSpace
			return
		}
	}
	m.rights, r.err = next, err
}

// denies returns the reason why a caller currently cannot perform a command, or nil.
func (m *model) denies(who access.Caller, c fsm.Command) error {
	if !m.rights.enabled || who == (access.Caller{}) && (operators(c) || fsm.Internal(c)) {
		return nil
	}
	if o, ok := c.(*fsm.Once); ok {
		c = o.Command
	}
	roles, err := m.rights.rolesOf(who)
	if aboutRights(c) || operators(c) {
		switch {
		case who.User == "":
			return access.ErrUserEmpty
		case err == access.ErrPermissionDenied:
			return access.ErrUserNotFound
		case !slices.Contains(roles, access.Root):
			return access.ErrPermissionDenied
		}
		return nil
	}
	switch {
	case err != nil:
		return err
	case !m.mayDo(who, c):
		return access.ErrPermissionDenied
	}
	return nil
}

// mayDo reports whether an authenticated caller may perform a command.
func (m *model) mayDo(who access.Caller, c fsm.Command) bool {
	may := func(what access.Kind, key, end string) bool { return m.rights.may(who, what, key, end) }
	switch c := c.(type) {
	case *fsm.Put:
		return may(access.Write, c.Key, "") && (!c.PrevKV || may(access.Read, c.Key, "")) &&
			(c.Lease == 0 && c.LeaseName == "" || m.mayHold(who, c.Lease, c.LeaseName, true))
	case *fsm.DeleteRange:
		return may(access.Write, c.Key, c.End) && (!c.PrevKV || may(access.Read, c.Key, c.End))
	case *fsm.Grant:
		kind := access.Manage
		if p := c.Terms.Principal; p == "" || p == who.User {
			kind = access.Hold
		}
		named := c.Terms.Name != "" && may(kind, c.Terms.Name, "")
		nameless := c.Terms.Name == "" && (kind == access.Hold || may(access.Manage, "", ""))
		return (named || nameless) && !slices.ContainsFunc(c.Holds, func(r keyrange.Range) bool {
			return !may(access.Read, r.Key, r.End)
		})
	case *fsm.Revoke:
		return m.mayHold(who, c.ID, c.Name, true)
	case *fsm.ChangeTTL:
		return m.mayHold(who, c.ID, c.Name, false)
	case *fsm.HandOver: // programs in the simulation do not set the new owner's principal
		return m.mayHold(who, c.ID, c.Name, false)
	case *fsm.Resume:
		return m.mayHold(who, c.ID, c.Name, false)
	case *fsm.Txn:
		return m.mayRun(who, c)
	default: // fsm.OpenSession
		return true
	}
}

// mayRun is mayDo for a transaction. It covers all operations that the transaction could perform.
func (m *model) mayRun(who access.Caller, c *fsm.Txn) bool {
	for _, k := range c.Compare {
		read := k.Target != fsm.TargetLeaseAlive && k.Target != fsm.TargetNameToken
		if read && !m.rights.may(who, access.Read, k.Key, k.End) ||
			k.Target == fsm.TargetNameToken && !m.rights.may(who, access.See, k.Key, "") {
			return false
		}
	}
	for _, op := range slices.Concat(c.Then, c.Else) {
		ok := true
		switch {
		case op.Put != nil:
			ok = m.mayDo(who, op.Put)
		case op.Delete != nil:
			ok = m.mayDo(who, op.Delete)
		case op.Grant != nil:
			ok = m.mayDo(who, op.Grant)
		case op.Revoke != nil:
			ok = m.mayDo(who, op.Revoke)
		case op.Touch != nil:
			ok = m.mayHold(who, op.Touch.ID, op.Touch.Name, true)
		case op.Txn != nil:
			ok = m.mayRun(who, op.Txn)
		case op.Range != nil:
			ok = m.rights.may(who, access.Read, op.Range.Key, op.Range.End)
		}
		if !ok {
			return false
		}
	}
	return true
}

// mayHold reports whether a caller may use a lease, if the lease exists. If byKeys is set and the
// lease has neither a name nor an owner, the permissions on its keys decide.
func (m *model) mayHold(who access.Caller, id lease.ID, name string, byKeys bool) bool {
	l := m.named(name)
	if i, ok := m.lease(id); name == "" && ok {
		l = &m.leases[i]
	}
	if l == nil {
		return name == "" || m.rights.may(who, access.Hold, name, "")
	}
	return m.rights.holds(who, l, byKeys, m.keys)
}

// holds is mayHold for an existing lease.
func (r *modelRights) holds(who access.Caller, l *modelLease, byKeys bool, keys []modelKey) bool {
	own := l.Principal != "" && l.Principal == who.User
	switch {
	case l.Name == "" && own:
		_, err := r.rolesOf(who)
		return err == nil || !r.enabled
	case own:
		return r.may(who, access.Hold, l.Name, "")
	case l.Name != "" || l.Principal != "" || !byKeys:
		return r.may(who, access.Manage, l.Name, "")
	}
	return !slices.ContainsFunc(keys, func(k modelKey) bool {
		return k.lease == l.ID && !r.may(who, access.Write, k.key, "")
	})
}
