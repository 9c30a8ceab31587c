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
	ErrUserEmpty = errors.New("access: the caller is anonymous, or the name of a user is " +
		"empty")
	ErrRoleExists   = errors.New("access: the role exists")
	ErrRoleNotFound = errors.New("access: role not found")
	ErrRoleEmpty    = errors.New("access: the name of the role is empty")
	// ErrRoleNotGranted means that the user does not have the role.
	ErrRoleNotGranted = errors.New("access: the user does not have the role")
	// ErrPermissionNotGranted means that the role has no permission on exactly this range.
	ErrPermissionNotGranted = errors.New("access: the role does not have the permission")
	// ErrPermissionNotGiven means that a permission to grant is missing.
	ErrPermissionNotGiven = errors.New("access: no permission is given")
	// ErrInvalidAuthMgmt means that a change makes no sense, whatever users and roles there are, or
	// takes from root what access control cannot do without. Errors that wrap it say which.
	ErrInvalidAuthMgmt = errors.New("access: invalid change")
	// ErrNotEnabled means that somebody logs in while access control is not enabled.
	ErrNotEnabled = errors.New("access: access control is not enabled")
)

// change is ErrInvalidAuthMgmt, and says why.
type change string

const (
	rootDeleted  change = "the user root is needed while access control is enabled"
	rootRevoked  change = "the user root needs the role root while access control is enabled"
	roleDeleted  change = "the role root is needed while access control is enabled"
	noKey        change = "the permission is for no key, and for no name"
	emptyRange   change = "the range of the permission is empty"
	unknownKind  change = "there is no permission of this kind"
	namedDefault change = "the limits of everybody have no name"
	unknownOwner change = "limits are of everybody, of a user or of a role"
	unknownLimit change = "there is no limit of this kind"
	belowNone    change = "a limit must not be below -1, which means none"
)

// Error implements error.
func (c change) Error() string { return ErrInvalidAuthMgmt.Error() + ": " + string(c) }

// Unwrap returns ErrInvalidAuthMgmt.
func (change) Unwrap() error { return ErrInvalidAuthMgmt }

// These errors are refusals of what callers ask for.
var (
	// ErrPermissionDenied means that the caller may not do it.
	ErrPermissionDenied = errors.New("access: permission denied")
	// ErrOldRevision means that users or roles have changed since the caller logged in: log in
	// again.
	ErrOldRevision = errors.New("access: users or roles have changed since the log-in")
	// ErrInvalidLogin means that the caller has shown a login that is invalid, or has ended.
	ErrInvalidLogin = errors.New("access: the login is invalid or has ended")
)
