package server

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// respiteSyncs is for how many syncs commands wait for others at most: who comes
	// later than the next sync would begin has waited for two. maxRespite bounds it
	// where syncs are slow.
	respiteSyncs = 2
	maxRespite   = 500 * time.Microsecond
)

// respite bounds how long commands wait for others to share their sync
// (replica.Replica.Held). Its timer is the kernel's: one of Go's fires up to a millisecond
// late in a process that is otherwise idle, which is several syncs.
type respite struct {
	timer *os.File
	fd    int
	over  func() // called on a goroutine of its own
	armed bool   // belongs to who calls follow
}

func newRespite(over func()) (*respite, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("server: make a timer: %w", err)
	}
	return &respite{timer: os.NewFile(uintptr(fd), "timer"), fd: fd, over: over}, nil
}

// run calls over whenever the time is over, until it is closed.
func (r *respite) run() {
	var expirations [8]byte
	for {
		if _, err := r.timer.Read(expirations[:]); err != nil {
			return
		}
		r.over()
	}
}

// follow starts or stops the timer by what the replica says now: whether commands wait,
// and how long a sync takes.
func (r *respite) follow(held bool, sync time.Duration) {
	if held == r.armed {
		return
	}
	var at unix.ItimerSpec // zero stops it
	if held {
		at.Value = unix.NsecToTimespec(int64(max(min(respiteSyncs*sync, maxRespite), 1)))
	}
	if err := unix.TimerfdSettime(r.fd, 0, &at, nil); err != nil {
		panic("server: set a timer: " + err.Error()) // only of bad arguments
	}
	r.armed = held
}

// fired notes that the time is over, so that there is no timer to be stopped.
func (r *respite) fired() { r.armed = false }

// close ends run.
func (r *respite) close() { _ = r.timer.Close() }
