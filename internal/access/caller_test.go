package access

import (
	"context"
	"testing"
)

// TestContext asks contexts of a call, of a member and of nobody who calls.
func TestContext(t *testing.T) {
	bob := Caller{"bob", 3}
	none := context.Background()
	call, own := WithCaller(none, bob), WithMember(none)
	if CallerOf(call) != bob || CallerOf(own) != (Caller{}) || CallerOf(none) != (Caller{}) {
		t.Errorf("%+v, %+v and %+v call", CallerOf(call), CallerOf(own), CallerOf(none))
	}
	if OfMember(call) || !OfMember(own) || OfMember(none) {
		t.Error("a call passes for what a member does by itself, or the other way round")
	}
}
