package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// bootClock keeps running while the machine is suspended, and cannot be set (clock_gettime(2)).
const bootClock = unix.CLOCK_BOOTTIME

func memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return min(uint64(info.Totalram)*uint64(info.Unit), groupMemory(os.DirFS("/")))
}
