package api

import (
	"testing"

	"leasehold.dev/internal/access"
)

// TestCallerOf checks contexts with and without a caller.
func TestCallerOf(t *testing.T) {
	if c := CallerOf(t.Context()); c != (access.Caller{}) {
		t.Errorf("without a caller: %+v", c)
	}
	bob := access.Caller{User: "bob", Revision: 3}
	if c := CallerOf(WithCaller(t.Context(), bob)); c != bob {
		t.Errorf("with bob: %+v", c)
	}
}
