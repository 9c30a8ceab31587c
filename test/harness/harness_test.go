package harness

import (
	"errors"
	"testing"
	"testing/synctest"
)

// failing is a test that records whether it failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(string, ...any) { f.failed = true; panic(f) }

// TestEventually checks that Eventually waits for a condition to become true, and fails the test if
// it never does.
func TestEventually(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		Eventually(t, "three", func() error {
			if n++; n < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		f := &failing{TB: t}
		func() {
			defer func() { _ = recover() }()
			Eventually(f, "never", func() error { return errors.New("never") })
		}()
		if n != 3 || !f.failed {
			t.Errorf("%d tries, failed %t", n, f.failed)
		}
	})
}

// TestBinaryGiven checks that Path does not build the binary if a flag names one.
func TestBinaryGiven(t *testing.T) {
	b := Binary{given: "/somewhere"}
	if got := b.Path(t); got != "/somewhere" || b.dir != "" {
		t.Errorf("%q, built in %q", got, b.dir)
	}
}
