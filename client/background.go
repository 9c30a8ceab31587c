package client

import (
	"context"
	"sync"
	"time"

	"leasehold.dev/client/internal/background"
)

func init() {
	background.Start = func(c any, f func(context.Context)) { c.(*Client).releases.start(f) }
}

// closeTimeout caps how long Close waits for releases that continue in the background.
const closeTimeout = 5 * time.Second

// releases tracks the releases that continue after their callers' contexts have ended.
type releases struct {
	running sync.WaitGroup

	mu     sync.Mutex // guards the following fields
	ctx    context.Context
	cancel context.CancelFunc
	closed bool
}

func newReleases() *releases {
	r := &releases{}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// start runs f on a new goroutine. If the client is closed, it runs f synchronously, with a
// canceled context.
func (r *releases) start(f func(context.Context)) {
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.running.Go(func() { f(r.ctx) })
	}
	r.mu.Unlock()
	if closed { // r.ctx may not be canceled yet
		ended, cancel := context.WithCancel(r.ctx)
		cancel()
		f(ended)
	}
}

// close waits up to closeTimeout for all releases to end.
func (r *releases) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	timeout := time.AfterFunc(closeTimeout, r.cancel)
	r.running.Wait()
	timeout.Stop()
	r.cancel()
}
