package server

import (
	"fmt"
	"time"

	"leasehold.dev/internal/host"
)

const (
	// delaySyncs is for how many syncs commands wait for others at most: one that comes
	// later than the next sync would begin has waited for two. maxDelay bounds it
	// where syncs are slow.
	delaySyncs = 2
	maxDelay   = 500 * time.Microsecond
)

// commitDelay bounds how long commands wait for others to share their sync
// (replica.Replica.Delayed).
type commitDelay struct {
	timer host.Timer
	over  func() // called on a goroutine of its own
	armed bool   // belongs to the caller of follow
}

func newCommitDelay(on *host.Host, over func()) (*commitDelay, error) {
	timer, err := on.Timer()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return &commitDelay{timer: timer, over: over}, nil
}

// run calls over whenever the time is over, until it is closed.
func (r *commitDelay) run() {
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

// fired notes that the time is over, so that there is no timer to be stopped.
func (r *commitDelay) fired() { r.armed = false }

// close ends run.
func (r *commitDelay) close() { _ = r.timer.Close() }
