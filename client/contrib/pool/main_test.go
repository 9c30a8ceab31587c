package pool_test

import (
	"testing"

	"go.uber.org/goleak"

	"leasehold.dev/test/harness"
)

// TestMain fails if a test leaks a goroutine.
func TestMain(m *testing.M) {
	harness.Parallel()
	goleak.VerifyTestMain(m)
}
