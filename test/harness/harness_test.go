package harness

import (
	"errors"
	"testing"
	"testing/synctest"
)

// failing is a test that notes whether it was failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(string, ...any) { f.failed = true; panic(f) }

// What comes true is waited for; what does not is given up, not earlier than said.
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

// A binary that the flag names is not built.
func TestBinaryGiven(t *testing.T) {
	b := Binary{given: "/somewhere"}
	if got := b.Path(t); got != "/somewhere" || b.dir != "" {
		t.Errorf("%q, built in %q", got, b.dir)
	}
}
