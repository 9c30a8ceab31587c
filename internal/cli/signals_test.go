//go:build linux

package cli

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/test/tier"
)

// Goal: a signal that comes as a command gets what it waits for is not lost: it ends what the
// command then runs. Method: what was waited for is there, and the signal was taken by what
// interrupts the waiting, or waits in its channel.
func TestSignalAtTheEndOfWaiting(t *testing.T) {
	tier.Campaign(t)
	for name, taken := range map[string]bool{"taken": true, "waiting": false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		a := &app{Process: Process{Env: os.Environ(), Stdin: strings.NewReader("")}}
		stop := a.interruptWaiting(cancel)
		if !taken {
			stop()
		}
		a.waiting.signals <- syscall.SIGTERM
		if taken {
			<-ctx.Done()
		}
		c, err := a.startChild([]string{"sleep", "60"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.kill)
		if c.under(lasting(), notice{}) {
			t.Errorf("%s: it had to be ended", name)
		}
		if got := exitCode(c.exit()); got != exitBySignal+int(syscall.SIGTERM) {
			t.Errorf("%s: exit code %d", name, got)
		}
	}
}

// Goal: a signal that both listeners have got is passed on once.
func TestSignalPassedOnOnce(t *testing.T) {
	_, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	i := new(app).cancelBySignal(cancel)
	i.stop()
	i.signals <- syscall.SIGINT
	to := make(chan os.Signal, 16)
	to <- syscall.SIGINT
	if i.passOn(to); len(to) != 1 {
		t.Errorf("%d signals", len(to))
	}
}

// Goal: under nohup neither a command that waits nor one that is run is ended by the end of its
// terminal. Method: to listen to a signal ends that it is ignored.
func TestHangUpIgnored(t *testing.T) {
	tier.Campaign(t)
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	_, end := new(app).untilSignal()
	defer end()
	c, _ := run(t, "echo ready; sleep 60")
	c.kill()
	<-c.done
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("SIGHUP is not ignored any more")
	}
}
