package app

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// A signal that both listeners received is passed on once.
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
