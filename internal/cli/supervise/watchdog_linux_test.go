package supervise

import (
	"io"
	"slices"
	"testing"
	"time"
)

// TestWatchdog checks that a process group is killed at its deadline, or when the input ends,
// unless the watchdog was told to forget it. All deadlines are in the past or in the distant
// future.
func TestWatchdog(t *testing.T) {
	from, to := io.Pipe()
	killed := make(chan int, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		watchGroups(from, func(group int) { killed <- group })
	}()
	w := &watchdog{to}
	far := time.Now().Add(time.Hour)
	w.arm(11, far)
	w.arm(12, far)
	w.arm(13, far)
	w.disarm(12)
	w.arm(11, time.Now()) // its deadline was extended and passes now
	if g := <-killed; g != 11 {
		t.Errorf("group %d is killed, want 11", g)
	}
	w.disarm(11)
	w.arm(14, time.Now().Add(-time.Hour))
	if g := <-killed; g != 14 {
		t.Errorf("group %d is killed, want 14", g)
	}
	w.arm(15, far)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
	close(killed)
	rest := slices.Sorted(func(yield func(int) bool) {
		for g := range killed {
			if !yield(g) {
				return
			}
		}
	})
	if want := []int{13, 15}; !slices.Equal(rest, want) {
		t.Errorf("groups %v are killed at the end, want %v", rest, want)
	}
}
