//go:build linux || darwin

package cli

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Goal: a signal that comes as a command gets what it waits for is not lost: it ends what the
// command then runs. Method: what was waited for is there, and the signal was taken by what
// interrupts the waiting, or waits in its channel.
func TestSignalAtTheEndOfWaiting(t *testing.T) {
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
	i := cancelBySignal(cancel)
	i.stop()
	i.signals <- syscall.SIGINT
	to := make(chan os.Signal, 16)
	to <- syscall.SIGINT
	if i.passOn(to); len(to) != 1 {
		t.Errorf("%d signals", len(to))
	}
}
