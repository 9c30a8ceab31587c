package access

import "errors"

// These errors are refusals of changes of users and roles.
var (
	// ErrRootUserNotExist means that access control cannot be enabled without the user root.
	ErrRootUserNotExist = errors.New("access: there is no user root")
	// ErrRootRoleNotExist means that access control cannot be enabled while the user root does not
	// have the role root.
	ErrRootRoleNotExist = errors.New("access: the user root does not have the role root")
	ErrUserExists       = errors.New("access: the user exists")
	ErrUserNotFound     = errors.New("access: user not found")
	// ErrUserEmpty means that a name of a user is missing, or that nobody has logged in.
	ErrUserEmpty    = errors.New("access: nobody has logged in, or the name of a user is empty")
	ErrRoleExists   = errors.New("access: the role exists")
	ErrRoleNotFound = errors.New("access: role not found")
	ErrRoleEmpty    = errors.New("access: the name of the role is empty")
	// ErrRoleNotGranted means that the user does not have the role.
	ErrRoleNotGranted = errors.New("access: the user does not have the role")
	// ErrPermissionNotGranted means that the role has no permission on exactly this range.
	ErrPermissionNotGranted = errors.New("access: the role does not have the permission")
	// ErrPermissionNotGiven means that a permission to grant is missing.
	ErrPermissionNotGiven = errors.New("access: no permission is given")
	// ErrInvalidAuthMgmt means that root would lose what access control cannot do without, that a
	// permission is for no key, or that there is no such limit.
	ErrInvalidAuthMgmt = errors.New("access: invalid change: root is needed while access control is " +
		"enabled, a permission is for a key or a range of keys, and a limit is for something known " +
		"and not below -1")
	// ErrNotEnabled means that somebody logs in while access control is not enabled.
	ErrNotEnabled = errors.New("access: access control is not enabled")
)

// These errors are refusals of what callers ask for.
var (
	// ErrPermissionDenied means that the caller may not do it.
	ErrPermissionDenied = errors.New("access: permission denied")
	// ErrOldRevision means that users or roles have changed since the caller logged in: log in
	// again.
	ErrOldRevision = errors.New("access: users or roles have changed since the log-in")
)
