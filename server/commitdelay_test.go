package server

import (
	"testing"
	"time"

	"leasehold.dev/internal/host"
)

// TestCommitDelay checks that the callback runs once for each period in which commands are delayed,
// however long syncs take. It does not run after the commands have been released. Both the kernel's
// timer and Go's are tested.
func TestCommitDelay(t *testing.T) {
	for name, on := range map[string]*host.Host{"kernel's": nil, "Go's": {}} {
		t.Run(name, func(t *testing.T) { testCommitDelay(t, on) })
	}
}

func testCommitDelay(t *testing.T, on *host.Host) {
	over := make(chan struct{}, 1)
	r, err := newCommitDelay(on, func() { over <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); r.run() }()
	for _, sync := range []time.Duration{0, 100 * time.Microsecond, time.Hour} {
		r.follow(true, sync)
		r.follow(true, sync)
		<-over
		r.follow(false, sync)
	}
	r.close()
	<-ended
	select {
	case <-over:
		t.Error("a timer that was stopped fired")
	default:
	}
}
