package nodes_test

import (
	"testing"

	"go.uber.org/goleak"

	"leasehold.dev/test/harness"
)

// TestMain reports goroutines that a test has leaked.
func TestMain(m *testing.M) {
	harness.Parallel()
	goleak.VerifyTestMain(m)
}
