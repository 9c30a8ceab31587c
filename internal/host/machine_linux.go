package host

import "golang.org/x/sys/unix"

// bootClock keeps running while the machine is suspended, and cannot be set (clock_gettime(2)).
const bootClock = unix.CLOCK_BOOTTIME
