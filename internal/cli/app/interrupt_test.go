package app

import (
	"context"
	"os"
	"runtime"
	"syscall"
	"testing"
)

// TestSignalPassedOnOnce checks that a signal received by both listeners is forwarded only once.
func TestSignalPassedOnOnce(t *testing.T) {
	_, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	i := new(App).CancelBySignal(cancel)
	i.Stop()
	i.Signals <- syscall.SIGINT
	to := make(chan os.Signal, 16)
	to <- syscall.SIGINT
	if i.PassOn(to); len(to) != 1 {
		t.Errorf("%d signals", len(to))
	}
}

// TestSettle checks that by the time Settle returns, a signal that arrived before it has canceled
// the context.
func TestSettle(t *testing.T) {
	for range 100 {
		ctx, cancel := context.WithCancelCause(t.Context())
		i := new(App).CancelBySignal(func(why error) {
			for range 1000 { // simulates a busy machine
				runtime.Gosched()
			}
			cancel(why)
		})
		i.Signals <- syscall.SIGINT
		if i.Settle(); ctx.Err() == nil {
			t.Fatal("the signal was not processed")
		}
		i.Settle()
		i.Stop()
	}
}
