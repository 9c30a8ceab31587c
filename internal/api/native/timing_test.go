package native

import (
	"slices"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestKinds: every request that can be slow has a kind, which is the name of its field, also one
// that is new in the protocol.
func TestKinds(t *testing.T) {
	lasting := []string{"watch", "events", "cache"}
	unanswered := []string{"cancel", "cache_ack"}
	bodies := new(pb.Request).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range bodies.Len() {
		field, r := bodies.Get(i), new(pb.Request)
		m := r.ProtoReflect()
		m.Set(field, m.NewField(field))
		want := string(field.Name())
		if slices.Contains(lasting, want) || slices.Contains(unanswered, want) {
			want = ""
		}
		if got := kindOf(r); got != want {
			t.Errorf("a request with %s is of the kind %q, want %q", field.Name(), got, want)
		}
	}
}
