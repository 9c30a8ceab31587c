package host

import "golang.org/x/sys/unix"

// bootClock keeps running while the machine is suspended, and adjustments of the time do not affect
// it, according to Apple's manual page clock_gettime(3); Libc reads mach_continuous_time for it
// (gen/clock_gettime.c). CLOCK_MONOTONIC keeps running too, but follows adjustments of the wall
// clock. CLOCK_UPTIME_RAW stops during suspend, as Go's own monotonic clock does.
const bootClock = unix.CLOCK_MONOTONIC_RAW

func memory() uint64 {
	n, _ := unix.SysctlUint64("hw.memsize") // 0 after an error
	return n
}
