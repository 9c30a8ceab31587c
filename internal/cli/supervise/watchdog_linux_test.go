package supervise

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/tier"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == WatchdogCommand {
		Watchdog(os.Stdin, os.Args[2:])
		return
	}
	os.Exit(m.Run())
}

// startTestWatchdog starts a watchdog that spares some children of this process, and ends it when
// the test does.
func startTestWatchdog(t *testing.T, spared ...string) *watchdog {
	t.Helper()
	args := append([]string{WatchdogCommand, strconv.Itoa(os.Getpid())}, spared...)
	cmd := exec.Command("/proc/self/exe", args...)
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = to.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return &watchdog{to}
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
// process is stopped before it can tell the watchdog which process group that is. A child that this
// process inherited survives.
func TestStoppedAfterStart(t *testing.T) {
	tier.RealTime(t)
	inherited := exec.Command("cat")
	input, err := inherited.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := inherited.Start(); err != nil {
		t.Fatal(err)
	}
	w := startTestWatchdog(t, strconv.Itoa(inherited.Process.Pid))
	ended, out, err := os.Pipe() // reaches its end when the program does
	if err != nil {
		t.Fatal(err)
	}
	defer ended.Close()
	before := stuck{w, make(chan struct{}), make(chan struct{})}
	s := &Supervisor{App: &app.App{Process: app.Process{
		Env: os.Environ(), Stdin: strings.NewReader(""), Stdout: out,
	}}}
	s.once.Do(func() { s.watchdog = before })
	children := make(chan *child, 1)
	go func() {
		passed := &term{until: time.Now().Add(-time.Hour)}
		c, err := s.Start(passed, Notice{}, s.Stdin, []string{"sleep", "1000"}, nil)
		if err != nil {
			t.Error(err)
			close(before.started)
		}
		children <- c
	}()
	if _, ok := <-before.started; !ok {
		return
	}
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
	c.watchdog = w
	if !c.Under(lasting(), Notice{}) {
		t.Error("the program was killed after its tenure, but is not said to be lost")
	}
	_ = input.Close()
	if err := inherited.Wait(); err != nil {
		t.Errorf("the inherited child: %v", err)
	}
}

// TestSlowStart checks that the deadline moves with the tenure while a program is being started.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deadlines{t: t}
		c := &child{watchdog: d}
		tenure := moving{time.Second, t.Context()}
		started := make(chan error)
		time.AfterFunc(5*time.Second, func() { started <- nil })
		c.arm(anyChild, tenure, Notice{Kill: time.Second / 2})
		if err := c.awaitStart(started, tenure, Notice{Kill: time.Second / 2}); err != nil {
			t.Error(err)
		}
		d.check()
		if c.late {
			t.Error("a deadline is said to have been reached")
		}
	})
}

// TestLate checks that a deadline that was reached is remembered even if the tenure was renewed
// before the watchdog got the next one, as it can be if this process was stopped.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &child{watchdog: (*watchdog)(nil)}
		c.arm(anyChild, &term{until: time.Now().Add(time.Second)}, Notice{})
		time.Sleep(2 * time.Second)
		c.arm(anyChild, lasting(), Notice{})
		if !c.late {
			t.Error("the deadline is not said to have been reached")
		}
	})
}

// watched starts a watchdog in this process. The function end ends its input and returns the groups
// that were killed and not yet received.
func watched(t *testing.T) (w *watchdog, killed <-chan int, end func() []int) {
	t.Helper()
	from, to := io.Pipe()
	kills := make(chan int, 100)
	go func() {
		defer close(kills)
		watchGroups(from, func(group int) { kills <- group })
	}()
	return &watchdog{to}, kills, func() (rest []int) {
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		for g := range kills {
			rest = append(rest, g)
		}
		slices.Sort(rest)
		return rest
	}
}

// TestStartedProgramHasGroup checks that the deadline for all children is removed when a group gets
// one, since the message that removes it can be lost.
func TestStartedProgramHasGroup(t *testing.T) {
	tier.RealTime(t)
	w, killed, end := watched(t)
	w.arm(anyChild, time.Now().Add(-time.Hour))
	if g := <-killed; g != anyChild {
		t.Errorf("group %d is killed, want all children", g)
	}
	w.arm(11, time.Now().Add(time.Hour))
	w.disarm(12) // once this line is being read, the preceding one has taken effect
	for len(killed) > 0 {
		<-killed
	}
	w.arm(13, time.Now().Add(time.Second/4))
	late := 0
	for g := <-killed; g != 13; g = <-killed {
		late++
	}
	if late > 1 { // one was perhaps under way
		t.Errorf("all children are killed %d more times", late)
	}
	end()
}

// TestWatchdog checks that a process group is killed at its deadline, or when the input ends,
// unless the watchdog was told to forget it. All deadlines are in the past or in the distant
// future.
func TestWatchdog(t *testing.T) {
	w, killed, end := watched(t)
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
	if rest, want := end(), []int{13, 15}; !slices.Equal(rest, want) {
		t.Errorf("groups %v are killed at the end, want %v", rest, want)
	}
}
