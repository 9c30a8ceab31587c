package host

import "golang.org/x/sys/unix"

// bootClock keeps running while the machine is suspended. Clock adjustments do not affect it,
// according to Apple's clock_gettime(3) manual page; Libc implements it with mach_continuous_time
// (gen/clock_gettime.c). CLOCK_MONOTONIC also keeps running, but follows adjustments of the wall
// clock. CLOCK_UPTIME_RAW stops during suspend, like Go's own monotonic clock.
const bootClock = unix.CLOCK_MONOTONIC_RAW

func memory() uint64 {
	n, _ := unix.SysctlUint64("hw.memsize") // 0 after an error
	return n
}
