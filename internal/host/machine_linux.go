package host

import "golang.org/x/sys/unix"

// bootClock runs on while the machine is suspended, and nobody sets it (clock_gettime(2)).
const bootClock = unix.CLOCK_BOOTTIME
