package nodes_test

import (
	"testing"

	"go.uber.org/goleak"

	"leasehold.dev/test/harness"
)

// TestMain says when a test has left a goroutine behind.
func TestMain(m *testing.M) {
	harness.Parallel()
	goleak.VerifyTestMain(m)
}
