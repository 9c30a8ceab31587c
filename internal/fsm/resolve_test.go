package fsm

import (
	"testing"
)

// TestNamedRefusalIsRemembered checks that an error that contains a name survives a snapshot like
// other recorded errors.
func TestNamedRefusalIsRemembered(t *testing.T) {
	m := New(Config{})
	once := &Once{open(t, m, 5), 1, 0, &Revoke{ID: 3, Name: "n"}}
	first := apply(t, m, once)
	again := apply(t, restored(t, m), once)
	if first.Err.Error() != `lease: not found: lease 0000000000000003 does not have the name "n"` ||
		again.Err == nil || again.Err.Error() != first.Err.Error() || !again.Repeated {
		t.Errorf("%v, and from a snapshot %v", first.Err, again.Err)
	}
}
