package client

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// TestPutMessage checks that a put refers to its lease by ID alone if possible. With a name or
// token it sends a reference instead.
func TestPutMessage(t *testing.T) {
	for name, c := range map[string]struct {
		put  store.Put
		want *pb.PutRequest
	}{
		"no lease": {
			store.Put{Key: "k", Value: []byte("v"), PrevKV: true},
			&pb.PutRequest{Key: []byte("k"), Value: []byte("v"), PrevKv: true},
		},
		"by ID": {
			store.Put{Key: "k", Lease: 7}, &pb.PutRequest{Key: []byte("k"), Lease: 7},
		},
		"by ID, under a token": {
			store.Put{Key: "k", Lease: 7, LeaseToken: 9},
			&pb.PutRequest{Key: []byte("k"), LeaseRef: &pb.LeaseRef{Id: 7, Token: 9}},
		},
		"by name": {
			store.Put{Key: "k", LeaseName: "n"},
			&pb.PutRequest{Key: []byte("k"), LeaseRef: &pb.LeaseRef{Name: "n"}},
		},
		"by both": {
			store.Put{Key: "k", Lease: 7, LeaseName: "n", LeaseToken: 9},
			&pb.PutRequest{Key: []byte("k"), LeaseRef: &pb.LeaseRef{Id: 7, Name: "n", Token: 9}},
		},
		"for a time": {
			store.Put{Key: "k", TTL: time.Second + 1, KeepValue: true},
			&pb.PutRequest{Key: []byte("k"), TtlMs: 1001, IgnoreValue: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := &pb.PutRequest{}
			fillPut(got, &c.put)
			if !proto.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if op := opMessage(c.put).GetPut(); !proto.Equal(op, c.want) {
				t.Errorf("as an operation %v, want %v", op, c.want)
			}
		})
	}
}
