// Package oserror recognizes what the system says of files, in wrapped errors too.
package oserror

import (
	"os"

	"github.com/cockroachdb/errors"
)

// The errors of package os.
var (
	ErrInvalid    = os.ErrInvalid
	ErrPermission = os.ErrPermission
	ErrExist      = os.ErrExist
	ErrNotExist   = os.ErrNotExist
)

// IsPermission tells whether err says that it is not allowed.
func IsPermission(err error) bool { return errors.Is(err, ErrPermission) }

// IsExist tells whether err says that there is such a file.
func IsExist(err error) bool { return errors.Is(err, ErrExist) }

// IsNotExist tells whether err says that there is no such file.
func IsNotExist(err error) bool { return errors.Is(err, ErrNotExist) }
