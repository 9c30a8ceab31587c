package native

import (
	"fmt"
	"strings"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/wire"
)

// TestOperations checks that the table of operations includes every stream request that has a
// single response.
func TestOperations(t *testing.T) {
	s := service(newNode(), Options{})
	others := "renew watch events cache cache_ack cancel" // handled by the stream itself
	fields := new(pb.Request).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		field, r := fields.Get(i), new(pb.Request)
		if strings.Contains(others, string(field.Name())) {
			continue
		}
		m := r.ProtoReflect()
		m.Set(field, m.NewField(field))
		body, name := wire.RequestBody(r)
		if _, err := s.jobOf(t.Context(), body, number{}); strings.Contains(fmt.Sprint(err), "no body") {
			t.Errorf("%s: %v", field.Name(), err)
		}
		if name != string(field.Name()) {
			t.Errorf("%s is logged as %s", field.Name(), name)
		}
	}
}
