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

// closeTimeout bounds how long Close waits for releases that continue in the background.
const closeTimeout = 5 * time.Second

// releases are the releases that continue after their callers' contexts have ended.
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

// start runs f on a goroutine, or at once with an ended context if the client is closed.
func (r *releases) start(f func(context.Context)) {
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.running.Go(func() { f(r.ctx) })
	}
	r.mu.Unlock()
	if closed { // r.ctx may not have ended yet
		ended, cancel := context.WithCancel(r.ctx)
		cancel()
		f(ended)
	}
}

// close waits until all releases have ended, but at most for closeTimeout.
func (r *releases) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	timeout := time.AfterFunc(closeTimeout, r.cancel)
	r.running.Wait()
	timeout.Stop()
	r.cancel()
}
