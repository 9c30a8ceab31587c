package server

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"leasehold.dev/internal/host"
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
// late in a process that is otherwise idle, which is several syncs. On a machine that a test
// has made, where the time is the test's own, it is one of Go's.
type respite struct {
	timer io.ReadCloser
	set   func(after time.Duration) // 0 stops it
	over  func()                    // called on a goroutine of its own
	armed bool                      // belongs to who calls follow
}

func newRespite(on *host.Host, over func()) (*respite, error) {
	if on != nil {
		t := newGoTimer()
		return &respite{timer: t, set: t.set, over: over}, nil
	}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("server: make a timer: %w", err)
	}
	set := func(after time.Duration) {
		at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}
		if err := unix.TimerfdSettime(fd, 0, &at, nil); err != nil {
			panic("server: set a timer: " + err.Error()) // only of bad arguments
		}
	}
	return &respite{timer: os.NewFile(uintptr(fd), "timer"), set: set, over: over}, nil
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
	after := time.Duration(0)
	if held {
		after = max(min(respiteSyncs*sync, maxRespite), 1)
	}
	r.set(after)
	r.armed = held
}

// fired notes that the time is over, so that there is no timer to be stopped.
func (r *respite) fired() { r.armed = false }

// close ends run.
func (r *respite) close() { _ = r.timer.Close() }

// goTimer is one of Go's timers that can be read, as a kernel's can.
type goTimer struct {
	timer *time.Timer
	done  chan struct{}
}

func newGoTimer() *goTimer {
	t := &goTimer{timer: time.NewTimer(time.Hour), done: make(chan struct{})}
	t.timer.Stop()
	return t
}

func (t *goTimer) set(after time.Duration) {
	if t.timer.Stop(); after > 0 {
		t.timer.Reset(after)
	}
}

// Read implements io.Reader: it waits until the time is over.
func (t *goTimer) Read([]byte) (int, error) {
	select {
	case <-t.timer.C:
		return 0, nil
	case <-t.done:
		return 0, os.ErrClosed
	}
}

// Close implements io.Closer. It is called once.
func (t *goTimer) Close() error {
	close(t.done)
	return nil
}
