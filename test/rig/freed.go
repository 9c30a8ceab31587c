package rig

import (
	"runtime"
	"testing"
	"time"
)

// Freed returns what waits until the runtime has freed what p points to, to which the caller keeps
// no pointer then.
func Freed[T any](t testing.TB, p *T) (wait func()) {
	gone := make(chan struct{})
	runtime.AddCleanup(p, func(gone chan struct{}) { close(gone) }, gone)
	return func() {
		t.Helper()
		for limit := time.After(time.Minute); ; runtime.Gosched() {
			runtime.GC()
			select {
			case <-gone:
				return
			case <-limit:
				t.Errorf("a %T is still in memory", (*T)(nil))
				return
			default:
			}
		}
	}
}
