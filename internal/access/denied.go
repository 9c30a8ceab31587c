package access

import (
	"fmt"
	"slices"
	"strings"

	"leasehold.dev/internal/keyrange"
)

// A DeniedError is ErrPermissionDenied, and tells the caller what it would have needed. It is for
// nobody else.
type DeniedError struct {
	// User is the caller, and Roles are its roles.
	User  string
	Roles []string
	// What would have been needed on which keys or names; if no name is named, the lease would have
	// to be the caller's.
	What Kind
	Of   keyrange.Range
}

// Error says what is needed, and who the caller is.
func (e *DeniedError) Error() string {
	need := "needs " + e.What.String() + " on " + readable(e.Of)
	switch {
	case e.What.ofNames() && e.Of.Key == "":
		need = "the lease is not yours"
	case e.What.ofNames():
		need = "needs " + e.What.String() + " on the name " + readable(e.Of)
	}
	roles := "no roles"
	if len(e.Roles) > 0 {
		roles = "roles: " + strings.Join(e.Roles, ", ")
	}
	return fmt.Sprintf("permission denied: %s, you are %s (%s)", need, e.User, roles)
}

// Unwrap returns ErrPermissionDenied.
func (e *DeniedError) Unwrap() error { return ErrPermissionDenied }

func readable(r keyrange.Range) string {
	switch r.End {
	case "":
		return fmt.Sprintf("%q", r.Key)
	case keyrange.NoEnd:
		return fmt.Sprintf("everything from %q on", r.Key)
	default:
		return fmt.Sprintf("%q to %q", r.Key, r.End)
	}
}

// String returns the word for k.
func (k Kind) String() string {
	switch k {
	case Read:
		return "read"
	case Write:
		return "write"
	case ReadWrite:
		return "readwrite"
	case See:
		return "see"
	case Hold:
		return "hold"
	case Manage:
		return "manage"
	default:
		return fmt.Sprintf("kind %d", uint8(k))
	}
}

func deny(u *User, what Kind, of keyrange.Range) error {
	return &DeniedError{User: u.Name, Roles: slices.Clone(u.Roles), What: what, Of: of}
}
