package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// machineTime reads a clock that all processes of the machine share, and that nobody sets.
func machineTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}
