// Package sample has tests that fail as often as a file says.
package sample

import (
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/test/tier"
)

// fail fails the test if its name is in the file that lists failures to come, and removes one.
func fail(t *testing.T) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(os.Getenv("FAILURES"), t.Name()+".*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		if err := os.Remove(left[0]); err != nil {
			t.Fatal(err)
		}
		t.Fatal("failed as planned")
	}
}

func TestMarked(t *testing.T) { tier.RealTime(t); fail(t) }

func TestOther(t *testing.T) { tier.RealTime(t); fail(t) }

func TestUnmarked(t *testing.T) { fail(t) }

func TestPanics(t *testing.T) {
	tier.RealTime(t)
	if _, err := os.Stat(filepath.Join(os.Getenv("FAILURES"), "panic")); err == nil {
		panic("panicked as planned")
	}
}
