package host

import "golang.org/x/sys/unix"

// bootClock runs on while the machine sleeps, and no adjustment of the time touches it: so says
// Apple's manual page clock_gettime(3), and Libc reads mach_continuous_time for it
// (gen/clock_gettime.c). CLOCK_MONOTONIC runs on as well, but follows adjustments of the wall
// clock. CLOCK_UPTIME_RAW stands still during sleep, as Go's own monotonic clock does.
const bootClock = unix.CLOCK_MONOTONIC_RAW
