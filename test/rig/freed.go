package rig

import "runtime"

// Freed returns a function that waits until the runtime has freed the value to which p points. The
// caller must keep no pointer to it.
func Freed[T any](p *T) (wait func()) {
	gone := make(chan struct{})
	runtime.AddCleanup(p, func(gone chan struct{}) { close(gone) }, gone)
	return func() {
		for { // otherwise the test times out
			runtime.GC()
			select {
			case <-gone:
				return
			default:
				runtime.Gosched()
			}
		}
	}
}
