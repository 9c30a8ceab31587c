package access

import "errors"

// These errors are returned by changes to users and roles.
var (
	// ErrRootUserNotExist means that access control cannot be enabled because there is no user
	// root.
	ErrRootUserNotExist = errors.New("access: user root does not exist")
	// ErrRootRoleNotExist means that access control cannot be enabled because the user root does
	// not have the role root.
	ErrRootRoleNotExist = errors.New("access: the user root does not have the role root")
	ErrUserExists       = errors.New("access: user already exists")
	ErrUserNotFound     = errors.New("access: user not found")
	// ErrUserEmpty means that a user name is missing, or that the caller is not logged in.
	ErrUserEmpty = errors.New("access: the caller is anonymous, or the user name is " +
		"empty")
	ErrRoleExists   = errors.New("access: role already exists")
	ErrRoleNotFound = errors.New("access: role not found")
	ErrRoleEmpty    = errors.New("access: the role name is empty")
	// ErrRoleNotGranted means that the user does not have the role.
	ErrRoleNotGranted = errors.New("access: the user does not have the role")
	// ErrPermissionNotGranted means that the role has no permission on exactly this range.
	ErrPermissionNotGranted = errors.New("access: the role does not have the permission")
	// ErrPermissionNotGiven means that a request to grant a permission does not specify one.
	ErrPermissionNotGiven = errors.New("access: no permission specified")
	// ErrInvalidAuthMgmt means that a change is invalid, or would strip root of something that
	// access control depends on. Errors that wrap it state the reason.
	ErrInvalidAuthMgmt = errors.New("access: invalid change")
	// ErrNotEnabled means that a client tried to log in while access control is disabled.
	ErrNotEnabled = errors.New("access: access control is not enabled")
)

// change is an ErrInvalidAuthMgmt with a reason.
type change string

const (
	rootDeleted  change = "the user root cannot be deleted while access control is enabled"
	rootRevoked  change = "root cannot lose the role root while access control is enabled"
	roleDeleted  change = "the role root cannot be deleted while access control is enabled"
	noKey        change = "the permission has neither a key nor a name"
	emptyRange   change = "the range of the permission is empty"
	unknownKind  change = "unknown kind of permission"
	namedDefault change = "default limits must not have a name"
	unknownOwner change = "limits must be for a user or a role, or be the default limits"
	unknownLimit change = "unknown kind of limit"
	belowNone    change = "a limit must be at least -1, which means no limit"
)

// Error implements error.
func (c change) Error() string { return ErrInvalidAuthMgmt.Error() + ": " + string(c) }

// Unwrap returns ErrInvalidAuthMgmt.
func (change) Unwrap() error { return ErrInvalidAuthMgmt }

// These errors are returned for requests from callers.
var (
	// ErrPermissionDenied means that the caller lacks a permission.
	ErrPermissionDenied = errors.New("access: permission denied")
	// ErrOldRevision means that users or roles have changed since the caller logged in. The caller
	// must log in again.
	ErrOldRevision = errors.New("access: users or roles have changed since you logged in")
	// ErrInvalidLogin means that the caller's login is invalid or has ended.
	ErrInvalidLogin = errors.New("access: the login is invalid or has ended")
)
