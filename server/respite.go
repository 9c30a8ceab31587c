package server

import (
	"fmt"
	"time"

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
// (replica.Replica.Held).
type respite struct {
	timer host.Timer
	over  func() // called on a goroutine of its own
	armed bool   // belongs to who calls follow
}

func newRespite(on *host.Host, over func()) (*respite, error) {
	timer, err := on.Timer()
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return &respite{timer: timer, over: over}, nil
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
	r.timer.Set(after)
	r.armed = held
}

// fired notes that the time is over, so that there is no timer to be stopped.
func (r *respite) fired() { r.armed = false }

// close ends run.
func (r *respite) close() { _ = r.timer.Close() }
