package listen

import (
	"runtime"
	"time"
)

const (
	// A connection can open fewOpens calls before it waits for its turn.
	fewOpens = 32
	// If a yielding goroutine does not run again for longYield, too many others are ready to run.
	longYield = time.Millisecond
	// A turn takes at most maxYields yields. Each is followed by a pause of at most maxPause.
	maxYields = 10
	maxPause  = 10 * time.Millisecond
)

// pace limits how fast goroutines for clients are started. Go runs ready goroutines in FIFO order.
// If thousands start at the same time, the core and the renewals of other clients have to wait for
// all of them each time one goroutine hands work to another.
type pace struct {
	turn  chan struct{} // capacity 1
	yield func()
}

// starts is shared by all servers of the process, because they share its processors.
var starts = newPace(runtime.Gosched)

func newPace(yield func()) *pace { return &pace{turn: make(chan struct{}, 1), yield: yield} }

// wait is called by a goroutine that has started other goroutines and is about to start more. It
// lets the started ones run, and returns when few goroutines are ready. Callers take turns.
func (p *pace) wait() {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	for range maxYields {
		began := time.Now()
		p.yield()
		took := time.Since(began)
		if took < longYield {
			return
		}
		time.Sleep(min(took/2, maxPause))
	}
}
