//go:build !linux && !darwin

package host

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// errNoMember means that this system cannot run members. It can run the client and the commands.
var errNoMember = fmt.Errorf("members cannot run on %s, only clients can: %w",
	runtime.GOOS, errors.ErrUnsupported)

func bootTime() (time.Duration, error) { return 0, errNoMember }

func openFiles() (uint64, error) { return 0, errNoMember }

func memory() uint64 { return 0 }
