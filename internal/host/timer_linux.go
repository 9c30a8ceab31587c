package host

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// kernelTimer is a kernel timer. In an otherwise idle process, a Go timer fires up to a millisecond
// late, which is as long as several syncs.
type kernelTimer struct {
	*os.File
	fd int
}

func newTimer() (Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("host: create a timer: %w", err)
	}
	return kernelTimer{os.NewFile(uintptr(fd), "timer"), fd}, nil
}

// Set implements Timer.
func (t kernelTimer) Set(after time.Duration) {
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}
	if err := unix.TimerfdSettime(t.fd, 0, &at, nil); err != nil {
		panic("host: set a timer: " + err.Error()) // only invalid arguments can make it fail
	}
}
