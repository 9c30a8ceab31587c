package rig

import "runtime"

// Freed returns a function that waits until the runtime has freed the value that p points to. The
// caller must not retain a pointer to the value.
func Freed[T any](p *T) (wait func()) {
	gone := make(chan struct{})
	runtime.AddCleanup(p, func(gone chan struct{}) { close(gone) }, gone)
	return func() {
		for { // if the value is never freed, the test times out
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
