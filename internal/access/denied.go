package access

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"leasehold.dev/internal/keyrange"
)

// A DeniedError is an ErrPermissionDenied that describes the missing permission. It is meant only
// for the caller, and discloses only keys and names that the caller sent or is permitted to see.
type DeniedError struct {
	// User and Roles describe the caller.
	User  string
	Roles []string
	// What and Of describe the missing permission. Of is empty if it must not be disclosed: see
	// CheckLease and OfLease.
	What Kind
	Of   keyrange.Range
}

// OfLease removes the key from an error that Check returned for a key attached to a lease, because
// the caller named only the lease.
func OfLease(err error) error {
	if err == nil {
		return nil
	}
	if d := new(DeniedError); errors.As(err, &d) {
		return &DeniedError{User: d.User, Roles: d.Roles, What: d.What}
	}
	return err
}

// Error describes the missing permission and the caller.
func (e *DeniedError) Error() string {
	roles := "no roles"
	if len(e.Roles) > 0 {
		shown := make([]string, len(e.Roles))
		for i, r := range e.Roles {
			shown[i] = readable(r)
		}
		roles = "roles: " + strings.Join(shown, ", ")
	}
	return fmt.Sprintf("permission denied: %s; you are %s (%s)", e.need(), readable(e.User), roles)
}

// need describes the missing permission.
func (e *DeniedError) need() string {
	of := e.Of
	switch {
	case e.What.ofNames() && of.Key != "":
		return "needs " + e.What.String() + " on the name " + readable(of.Key)
	case e.What == Manage:
		return "only root may grant leases without a name to others"
	case e.What.ofNames():
		return "the lease is not yours"
	case of == (keyrange.Range{}):
		return "needs " + e.What.String() + " on all keys of the lease"
	case of.End == "":
		return "needs " + e.What.String() + " on " + readable(of.Key)
	case of.End == keyrange.NoEnd:
		return "needs " + e.What.String() + " on all keys from " + readable(of.Key)
	default:
		return "needs " + e.What.String() + " on " + readable(of.Key) + " to " + readable(of.End)
	}
}

// Unwrap returns ErrPermissionDenied.
func (e *DeniedError) Unwrap() error { return ErrPermissionDenied }

// maxShown limits the length of a key or name in an error. Errors are sent in headers, where space
// is limited.
const maxShown = 128

// readable formats text for use in a sentence. It quotes the text unless it is a single plain word.
func readable(text string) string {
	rest := ""
	if len(text) > maxShown {
		text, rest = text[:maxShown], "..."
	}
	quoted := strconv.Quote(text)
	if text == "" || quoted[1:len(quoted)-1] != text || strings.ContainsAny(text, " ,()") {
		return quoted + rest
	}
	return text + rest
}

// String returns the name of the kind.
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
