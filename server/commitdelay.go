package server

import (
	"fmt"
	"time"

	"leasehold.dev/internal/host"
)

const (
	// delaySyncs bounds the commit delay, in syncs: a command that arrives after the next sync
	// would have begun has waited for two. maxDelay bounds it where syncs are slow.
	delaySyncs = 2
	maxDelay   = 500 * time.Microsecond
)

// commitDelay bounds how long commands wait to share a sync (replica.Replica.Delayed).
type commitDelay struct {
	timer host.Timer
	over  func() // called on its own goroutine
	armed bool   // belongs to the caller of follow
}

func newCommitDelay(on *host.Host, over func()) (*commitDelay, error) {
	timer, err := on.Timer()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return &commitDelay{timer: timer, over: over}, nil
}

// run calls over at the end of each delay, until it is closed.
func (r *commitDelay) run() {
	var expirations [8]byte
	for {
		if _, err := r.timer.Read(expirations[:]); err != nil {
			return
		}
		r.over()
	}
}

// follow starts or stops the timer: delayed is true if commands wait, and sync is the usual
// duration of a sync.
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

// close ends run.
func (r *commitDelay) close() { _ = r.timer.Close() }
