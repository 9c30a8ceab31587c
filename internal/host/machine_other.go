//go:build !linux && !darwin

package host

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// errNoMember says that no member runs here. The client and the command line do.
var errNoMember = fmt.Errorf("no member runs on %s, only clients do: %w",
	runtime.GOOS, errors.ErrUnsupported)

func bootTime() (time.Duration, error) { return 0, errNoMember }

func openFiles() (uint64, error) { return 0, errNoMember }
