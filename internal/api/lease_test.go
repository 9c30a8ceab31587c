package api

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"leasehold.dev/lease"
)

// TestLeaseMessage checks that the message for a lease has all fields except those that the caller
// sets, so that none is forgotten when a field is added.
func TestLeaseMessage(t *testing.T) {
	m := LeaseMessage(&lease.Info{
		Terms: lease.Terms{
			ID: 1, TTL: 1, Name: "n", Owner: "o", Principal: "p",
			Labels: map[string]string{"a": "b"}, LockDelay: 1, KeepKeys: true, Bound: true,
		},
		Token: 1, Delayed: true,
	}).ProtoReflect()
	setByCaller := []protoreflect.Name{"remaining_ms", "keys", "key_count", "holds"}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if m.Has(f) == slices.Contains(setByCaller, f.Name()) {
			t.Errorf("%s is set: %v", f.Name(), m.Has(f))
		}
	}
}
