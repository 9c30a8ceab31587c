package supervise

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/cli/app"
)

func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{WatchdogCommand}) {
		Watchdog(os.Stdin)
		return
	}
	os.Exit(m.Run())
}

// stuck is a guard that blocks before a process group is armed, as if this process had been stopped
// there.
type stuck struct {
	guard
	started, resume chan struct{}
}

func (s stuck) arm(group int, deadline time.Time) {
	if group != anyChild {
		s.started <- struct{}{}
		<-s.resume
	}
	s.guard.arm(group, deadline)
}

// TestStoppedAfterStart checks that the watchdog kills a program at its deadline even if this
// process is stopped before it can tell the watchdog which process group that is.
func TestStoppedAfterStart(t *testing.T) {
	w, err := startWatchdog("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	ended, out, err := os.Pipe() // reaches its end when the program does
	if err != nil {
		t.Fatal(err)
	}
	before := stuck{w, make(chan struct{}), make(chan struct{})}
	s := &Supervisor{App: &app.App{Process: app.Process{
		Env: os.Environ(), Stdin: strings.NewReader(""), Stdout: out,
	}}}
	s.once.Do(func() { s.watchdog = before })
	children := make(chan *child)
	go func() {
		passed := time.Now().Add(-time.Hour)
		c, err := s.Start(passed, s.Stdin, []string{"sleep", "1000"}, nil)
		if err != nil {
			t.Error(err)
		}
		children <- c
	}()
	<-before.started
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(ended); err != nil {
		t.Fatal(err)
	}
	close(before.resume)
	c := <-children
	if <-c.done; !c.killed() {
		t.Errorf("the program was not killed: %v", c.err)
	}
}

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
	w.arm(11, time.Now()) // its deadline changes to now
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
