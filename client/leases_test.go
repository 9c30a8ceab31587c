package client

import (
	"reflect"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestInfo checks that every field of a lease is read from its message, so that none is forgotten
// when a field is added.
func TestInfo(t *testing.T) {
	i := infoOf(&pb.Lease{
		Id: 1, Token: 1, TtlMs: 1, RemainingMs: 1, Name: "n", Owner: "o", Principal: "p",
		Labels: map[string]string{"a": "b"}, LockDelayMs: 1,
		AtExpiry: pb.AtExpiry_AT_EXPIRY_KEEP, Delayed: true, Bound: true,
		Keys: [][]byte{{1}}, KeyCount: 1, Holds: []*pb.KeyRange{{Key: []byte{1}}},
	})
	for name, f := range reflect.ValueOf(i).Fields() {
		if f.IsZero() {
			t.Errorf("%s is not set", name.Name)
		}
	}
}
