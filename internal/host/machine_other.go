//go:build !linux && !darwin

package host

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// errNoMember means that members do not run on this system. The client and the commands do.
var errNoMember = fmt.Errorf("members do not run on %s, only clients: %w",
	runtime.GOOS, errors.ErrUnsupported)

func bootTime() (time.Duration, error) { return 0, errNoMember }

func openFiles() (uint64, error) { return 0, errNoMember }

func memory() uint64 { return 0 }
