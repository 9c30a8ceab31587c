package server

import (
	"log/slog"
	"testing"
)

// flushed counts calls of Flush.
type flushed struct {
	slog.Handler
	times *int
}

func (f flushed) Flush() { *f.times++ }

// TestFlushBeforePanic checks that the log is flushed before a panic ends the process, but not when
// a goroutine returns normally.
func TestFlushBeforePanic(t *testing.T) {
	times := 0
	log := slog.New(flushed{slog.DiscardHandler, &times})
	if err := flushing(log, func() error { return nil }); err != nil || times != 0 {
		t.Errorf("flushed %d times, %v", times, err)
	}
	func() {
		defer func() {
			if v := recover(); v != "a bug" {
				t.Errorf("the panic is %v", v)
			}
		}()
		_ = flushing(log, func() error { panic("a bug") })
	}()
	if times != 1 {
		t.Errorf("flushed %d times", times)
	}
}
