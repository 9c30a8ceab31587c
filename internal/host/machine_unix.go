//go:build linux || darwin

package host

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime reads bootClock.
func bootTime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(bootClock, &ts); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}

func openFiles() (uint64, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, fmt.Errorf("host: get the limit on open files: %w", err)
	}
	return files.Cur, nil
}
