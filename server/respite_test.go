package server

import (
	"testing"
	"time"

	"leasehold.dev/internal/host"
)

// TestRespite: the time is over once for each time that commands are held, whatever a
// sync takes, and not after they have gone on. So it is with the kernel's timer and with Go's.
func TestRespite(t *testing.T) {
	for name, on := range map[string]*host.Host{"kernel's": nil, "Go's": {}} {
		t.Run(name, func(t *testing.T) { testRespite(t, on) })
	}
}

func testRespite(t *testing.T, on *host.Host) {
	over := make(chan struct{}, 1)
	r, err := newRespite(on, func() { over <- struct{}{} })
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
