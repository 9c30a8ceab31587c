//go:build linux

package supervise

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/tier"
)

// TestSignalAtTheEndOfWaiting checks that a signal is not lost if it arrives just as the command
// stops waiting. In that case, the signal still ends the child.
func TestSignalAtTheEndOfWaiting(t *testing.T) {
	tier.Campaign(t)
	for name, taken := range map[string]bool{"taken": true, "waiting": false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		a := &Supervisor{App: &app.App{Process: app.Process{Env: os.Environ(), Stdin: strings.NewReader("")}}}
		stop := a.InterruptWaiting(cancel)
		if !taken {
			stop()
		}
		a.Waiting.Signals <- syscall.SIGTERM
		if taken {
			<-ctx.Done()
		}
		c, err := a.Start(lasting(), Notice{}, a.Stdin, []string{"sleep", "60"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.kill)
		if c.Under(lasting(), Notice{}) {
			t.Errorf("%s: it had to be ended", name)
		}
		if got := app.ExitCode(c.Exit()); got != app.ExitBySignal+int(syscall.SIGTERM) {
			t.Errorf("%s: exit code %d", name, got)
		}
	}
}

// TestHangUpIgnored checks that a waiting command and its child survive a hangup under nohup. The
// command must not listen for SIGHUP, because then the signal would no longer be ignored.
func TestHangUpIgnored(t *testing.T) {
	tier.Campaign(t)
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	_, end := new(app.App).UntilSignal()
	defer end()
	c, _ := run(t, "echo ready; sleep 60")
	c.kill()
	<-c.done
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("SIGHUP is not ignored any more")
	}
}
