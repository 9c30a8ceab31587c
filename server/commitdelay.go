package server

import (
	"fmt"
	"time"

	"leasehold.dev/internal/host"
)

const (
	// delaySyncs limits the commit delay, in syncs. The value is 2 because, without a delay, a
	// command that arrives just after a sync has begun waits for two syncs. maxDelay limits the
	// delay if syncs are slow.
	delaySyncs = 2
	maxDelay   = 500 * time.Microsecond
)

// commitDelay limits how long commands wait to share a sync (replica.Replica.Delayed).
type commitDelay struct {
	timer host.Timer
	over  func() // called in run's goroutine
	armed bool   // used only by follow's caller
}

func newCommitDelay(on *host.Host, over func()) (*commitDelay, error) {
	timer, err := on.Timer()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return &commitDelay{timer: timer, over: over}, nil
}

// run calls the over function at the end of each delay. It returns when the timer is closed.
func (r *commitDelay) run() {
	var expirations [8]byte
	for {
		if _, err := r.timer.Read(expirations[:]); err != nil {
			return
		}
		r.over()
	}
}

// follow starts the timer if commands are waiting (delayed is true), and otherwise stops it. The
// argument sync is the usual duration of a sync.
func (r *commitDelay) follow(delayed bool, sync time.Duration) {
	if delayed == r.armed {
		return
	}
	after := time.Duration(0)
	if delayed {
		after = max(min(delaySyncs*sync, maxDelay), 1)
	}
	r.timer.Set(after)
	r.armed = delayed
}

// fired records that the timer has expired and need not be stopped.
func (r *commitDelay) fired() { r.armed = false }

// close makes run return.
func (r *commitDelay) close() { _ = r.timer.Close() }
