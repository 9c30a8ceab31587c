package api

import (
	"testing"

	"leasehold.dev/internal/access"
)

// TestCallerOf asks who makes a call, of contexts with and without a caller.
func TestCallerOf(t *testing.T) {
	if c := CallerOf(t.Context()); c != (access.Caller{}) {
		t.Errorf("nobody is %+v", c)
	}
	bob := access.Caller{User: "bob", Revision: 3}
	if c := CallerOf(WithCaller(t.Context(), bob)); c != bob {
		t.Errorf("bob is %+v", c)
	}
}
