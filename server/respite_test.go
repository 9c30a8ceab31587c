package server

import (
	"testing"
	"time"
)

// TestRespite: the time is over once for each time that commands are held, whatever a
// sync takes, and not after they have gone on.
func TestRespite(t *testing.T) {
	over := make(chan struct{}, 1)
	r, err := newRespite(func() { over <- struct{}{} })
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
