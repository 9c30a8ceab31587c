package harness

import (
	"testing"
	"time"
)

// Patience is how long a test waits for any operation before it fails. It is generous: an operation
// that normally takes a few seconds can take twenty times as long on a busy machine.
const Patience = 2 * time.Minute

// Eventually calls f until it returns nil. If it never does, Eventually fails the test with the
// last error.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	timeout := time.After(Patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
	}
}
