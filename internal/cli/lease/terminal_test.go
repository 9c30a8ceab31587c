package lease

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/apptest"
)

// TestNothingForTerminals checks that escape sequences in names, owners, labels and keys, which
// other clients choose, do not reach the terminal.
func TestNothingForTerminals(t *testing.T) {
	const evil = apptest.Evil
	l := &pb.Lease{
		Id: 1, Name: evil, Owner: evil, Labels: map[string]string{evil: evil},
		Keys: [][]byte{[]byte(evil)}, Holds: []*pb.KeyRange{{Key: []byte(evil), RangeEnd: []byte("b")}},
	}
	apptest.Harmless(t, map[string]app.Answer{
		"list":     showLeaseList(&pb.ListResponse{Leases: []*pb.Lease{l}}),
		"describe": showDescribed(&pb.DescribeResponse{Lease: l}),
		"event": showLeaseEvent(&leases.Event{
			Kind: leases.Revoked, By: evil, Lease: leases.Info{Name: evil, Owner: evil},
		}),
		"time to live": showTimeToLive(&clientv3.LeaseTimeToLiveResponse{
			GrantedTTL: 1, Keys: [][]byte{[]byte(evil)},
		}, true),
	})
}
