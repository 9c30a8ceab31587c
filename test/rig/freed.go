package rig

import "runtime"

// Freed returns what waits until the runtime has freed what p points to, to which the caller keeps
// no pointer then.
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
