package access

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"leasehold.dev/internal/keyrange"
)

// A DeniedError is ErrPermissionDenied, and tells the caller what it would have needed. It is for
// nobody else. It names only keys and names that the caller has named itself, or may see.
type DeniedError struct {
	// User is the caller, and Roles are its roles.
	User  string
	Roles []string
	// What would have been needed on which keys or names. Of is empty if these are not told: see
	// CheckLease and OfLease.
	What Kind
	Of   keyrange.Range
}

// OfLease returns an error of Check without the key that it is about, which is one of those of a
// lease: the caller has named only the lease.
func OfLease(err error) error {
	if err == nil {
		return nil
	}
	if d := new(DeniedError); errors.As(err, &d) {
		return &DeniedError{User: d.User, Roles: d.Roles, What: d.What}
	}
	return err
}

// Error says what is needed, and who the caller is.
func (e *DeniedError) Error() string {
	roles := "no roles"
	if len(e.Roles) > 0 {
		shown := make([]string, len(e.Roles))
		for i, r := range e.Roles {
			shown[i] = readable(r)
		}
		roles = "roles: " + strings.Join(shown, ", ")
	}
	return fmt.Sprintf("permission denied: %s, you are %s (%s)", e.need(), readable(e.User), roles)
}

// need says what is needed.
func (e *DeniedError) need() string {
	of := e.Of
	switch {
	case e.What.ofNames() && of.Key != "":
		return "needs " + e.What.String() + " on the name " + readable(of.Key)
	case e.What == Manage:
		return "a lease without a name is granted to others by root alone"
	case e.What.ofNames():
		return "the lease is not yours"
	case of == (keyrange.Range{}):
		return "needs " + e.What.String() + " on all keys of the lease"
	case of.End == "":
		return "needs " + e.What.String() + " on " + readable(of.Key)
	case of.End == keyrange.NoEnd:
		return "needs " + e.What.String() + " on everything from " + readable(of.Key) + " on"
	default:
		return "needs " + e.What.String() + " on " + readable(of.Key) + " to " + readable(of.End)
	}
}

// Unwrap returns ErrPermissionDenied.
func (e *DeniedError) Unwrap() error { return ErrPermissionDenied }

// maxShown bounds the bytes of a key or a name in an error: headers, in which errors travel, have
// no room for long ones.
const maxShown = 128

// readable returns a text as people can read it in a sentence: quoted unless it is one plain word.
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
