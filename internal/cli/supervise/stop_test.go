//go:build linux

package supervise

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// term is a tenure controlled by a test.
type term struct {
	mu    sync.Mutex
	until time.Time
	ctx   context.Context
}

func (t *term) ValidUntil() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until
}

func (t *term) Context() context.Context { return t.ctx }
func (*term) Token() lease.Token         { return 1 }
func (*term) Err() error                 { return nil }

// lasting returns a tenure that outlasts the test.
func lasting() *term {
	return &term{until: time.Now().Add(time.Hour), ctx: context.Background()}
}

// output receives a command's output and reports each line.
type output struct {
	lines chan string
	part  []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.part = append(o.part, p...)
	for {
		line, rest, ok := bytes.Cut(o.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		o.lines <- string(line)
		o.part = rest
	}
}

// run starts a shell script and waits until it prints "ready".
func run(t *testing.T, script string, env ...string) (*child, *output) {
	t.Helper()
	out := &output{lines: make(chan string, 100)}
	a := &Supervisor{App: &app.App{Process: app.Process{
		Env: os.Environ(), Stdin: strings.NewReader(""), Stdout: out, Stderr: out,
	}}}
	c, err := a.Start(lasting(), Notice{}, a.Stdin, []string{"sh", "-c", script}, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	for line := range out.lines {
		if line == "ready" {
			return c, out
		}
	}
	return nil, nil
}

// TestChildExit checks that the exit code is the child's, as a shell would report it, and that the
// child receives its environment.
func TestChildExit(t *testing.T) {
	tier.RealTime(t)
	for script, want := range map[string]int{
		"echo ready":                          0,
		"echo ready; exit 7":                  7,
		"echo ready; exit 122":                125,
		"echo ready; exit 123":                125,
		"echo ready; exit 124":                125, // 124 would mean that the lock was lost
		"echo ready; exit 127":                127,
		"echo ready; exit 128":                125,
		"echo ready; exit 130":                130,
		"echo ready; kill -9 $$":              128 + 9,
		`echo ready; exit "$LEASEHOLD_TOKEN"`: 42,
		// processes left behind by the child are ignored
		"echo ready; (sleep 60 &) ; exit 3":      3,
		"trap 'exit 9' TERM; echo ready; exit 0": 0,
	} {
		c, _ := run(t, script, "LEASEHOLD_TOKEN=42")
		if c.Under(lasting(), Notice{}) {
			t.Errorf("%s: it had to be ended", script)
		}
		if got := app.ExitCode(c.Exit()); got != want {
			t.Errorf("%s: exit code %d, want %d", script, got, want)
		}
		c.kill()
	}
}

// TestChildCannotStart checks that a command that cannot be run is distinguished from one that
// failed.
func TestChildCannotStart(t *testing.T) {
	a := &Supervisor{App: &app.App{Process: app.OS()}}
	for command, want := range map[string]int{"/no/such/command": 127, "no-such": 127, "/": 126} {
		_, err := a.Start(lasting(), Notice{}, a.Stdin, []string{command}, nil)
		if got := app.ExitCode(err); got != want {
			t.Errorf("%s: exit code %d (%v), want %d", command, got, err, want)
		}
	}
}

// TestNoWatchdog checks that a command runs without a watchdog if the watchdog cannot be started,
// for example because /proc is not mounted. A single warning is printed.
func TestNoWatchdog(t *testing.T) {
	var errs strings.Builder
	a := &Supervisor{App: &app.App{Process: app.OS()}}
	a.Program, a.Stderr = filepath.Join(t.TempDir(), "none"), &errs
	for range 2 {
		c, err := a.Start(lasting(), Notice{}, a.Stdin, []string{"true"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.Under(lasting(), Notice{}) || c.Exit() != nil {
			t.Error(c.Exit())
		}
	}
	a.EndMessages()
	if got := strings.Count(errs.String(), "cannot start the watchdog"); got != 1 {
		t.Errorf("%d warnings: %s", got, errs.String())
	}
}

// TestChildSignalPassedOn checks that signals are forwarded to the child.
func TestChildSignalPassedOn(t *testing.T) {
	tier.Campaign(t)
	c, _ := run(t, "trap 'exit 5' USR1; echo ready; while :; do sleep 0.05; done")
	c.signals <- syscall.SIGUSR1
	if c.Under(lasting(), Notice{}) {
		t.Error("it had to be ended")
	}
	if got := app.ExitCode(c.Exit()); got != 5 {
		t.Errorf("exit code %d, want 5", got)
	}
}

// TestChildAskedToEnd checks that a child is asked to exit early enough to finish before the tenure
// ends.
func TestChildAskedToEnd(t *testing.T) {
	tier.Campaign(t)
	c, _ := run(t, "trap 'echo bye; exit 6' TERM; echo ready; while :; do sleep 0.05; done")
	d := lasting()
	if !c.Under(d, Notice{Term: 2 * time.Hour}) {
		t.Error("it is not said to be lost")
	}
	if got := app.ExitCode(c.Exit()); got != 6 {
		t.Errorf("exit code %d, want 6", got)
	}
}

// TestChildKilled checks that a child that does not exit when asked is killed together with its
// descendants, even if it is stopped.
func TestChildKilled(t *testing.T) {
	tier.Campaign(t)
	for _, script := range []string{
		"trap '' TERM; echo ready; while :; do sleep 0.05; done",
		"trap '' TERM; echo ready; kill -STOP $$; exit 0",
		"trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & echo ready; wait",
	} {
		c, _ := run(t, script)
		d := lasting()
		d.until = time.Now().Add(300 * time.Millisecond)
		if !c.Under(d, Notice{Term: time.Hour, Kill: 10 * time.Millisecond}) {
			t.Errorf("%s: it is not said to be lost", script)
		}
		if got := app.ExitCode(c.Exit()); got != 128+9 {
			t.Errorf("%s: exit code %d, want 137", script, got)
		}
		group := c.cmd.Process.Pid
		for !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) { // until the last process is reaped
			if t.Context().Err() != nil {
				t.Fatalf("%s: something is left", script)
			}
		}
	}
}

// TestChildKilledAtOnce checks that the child is killed immediately if the tenure ends early.
func TestChildKilledAtOnce(t *testing.T) {
	tier.Campaign(t)
	c, _ := run(t, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := lasting()
	d.ctx = ctx
	if !c.Under(d, Notice{}) {
		t.Error("it is not said to be lost")
	}
	if got := app.ExitCode(c.Exit()); got != 128+9 {
		t.Errorf("exit code %d, want 137", got)
	}
}

// moving is a tenure that is renewed continuously, so that its remaining time is constant.
type moving struct {
	left time.Duration
	ctx  context.Context
}

func (m moving) ValidUntil() time.Time { return time.Now().Add(m.left) }

func (m moving) Context() context.Context { return m.ctx }
func (moving) Token() lease.Token         { return 1 }
func (moving) Err() error                 { return nil }

// deadlines is a guard that fails the test when a deadline is reached.
type deadlines struct {
	t     *testing.T
	next  time.Time
	armed int
}

func (d *deadlines) check() {
	if !d.next.IsZero() && !time.Now().Before(d.next) {
		d.t.Errorf("the deadline %v was reached", d.next)
	}
}

func (d *deadlines) arm(_ int, deadline time.Time) {
	d.check()
	d.next = deadline
	d.armed++
}

func (d *deadlines) disarm(int) { d.check() }

// TestRenewedTenure checks that the watchdog's deadline is extended before it is reached, for any
// notice period, even while a command that was asked to exit is still running.
func TestRenewedTenure(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		n    Notice
		asks bool
	}{
		{Notice{}, false},
		{Notice{Term: second / 2, Kill: second / 2}, false},
		{Notice{Term: second / 4, Kill: second / 40}, false},
		{Notice{Term: 2 * second, Kill: second / 2}, true},
		{Notice{Term: 2 * second}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &deadlines{t: t}
			if lost := underFor(d, moving{second, t.Context()}, tt.n, 5*second); lost != tt.asks {
				t.Errorf("%+v: lost %v, want %v", tt.n, lost, tt.asks)
			}
			if d.armed < 5 {
				t.Errorf("%+v: armed %d times", tt.n, d.armed)
			}
		})
	}
}

// TestKilledDuringSuspend checks that a program counts as lost if it was killed at a time when its
// tenure had ended, even if this process's monotonic clock has not reached the deadline, as after a
// suspend of the machine. Otherwise, a killed program is not lost.
func TestKilledDuringSuspend(t *testing.T) {
	tier.RealTime(t)
	killed := exec.Command("sh", "-c", "kill -9 $$")
	if err := killed.Run(); err == nil {
		t.Fatal("the program was not killed")
	}
	for _, ended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			tenure := &term{until: time.Now().Add(time.Hour), ctx: t.Context()}
			c := &child{cmd: killed, done: make(chan struct{}), watchdog: (*watchdog)(nil)}
			time.AfterFunc(time.Second, func() {
				if ended {
					tenure.mu.Lock()
					tenure.until = time.Now()
					tenure.mu.Unlock()
				}
				close(c.done)
			})
			if lost := c.Under(tenure, Notice{}); lost != ended {
				t.Errorf("the tenure has ended: %v, but lost is %v", ended, lost)
			}
		})
	}
}

// underFor calls under for a command that exits on its own after some time.
func underFor(d guard, t Tenure, n Notice, life time.Duration) (lost bool) {
	const noProcess = 1 << 30 // greater than any process ID on Linux
	c := &child{
		cmd: &exec.Cmd{Process: &os.Process{Pid: noProcess}}, done: make(chan struct{}), watchdog: d,
	}
	time.AfterFunc(life, func() { close(c.done) })
	return c.Under(t, n)
}
