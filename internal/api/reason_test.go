package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// TestReason checks the reason and the code of each error, for commands and for reads.
func TestReason(t *testing.T) {
	for _, tt := range []struct {
		err        error
		cmd, read  pb.Reason
		cmdCode    codes.Code
		wantDetail string
	}{
		{lease.ErrNotFound, notFound, notFound, codes.NotFound, "lease not found"},
		{
			fmt.Errorf("grant: %w", &lease.TTLError{Got: 1, Min: 5, Max: 9}), invalid, invalid,
			codes.InvalidArgument, "grant: lease: ttl 1 ms is not between 5 and 9 ms",
		},
		{
			&lease.KeyLimitError{ID: 1, Limit: 2}, pb.Reason_REASON_TOO_MANY_KEYS,
			pb.Reason_REASON_TOO_MANY_KEYS, codes.ResourceExhausted,
			"lease 0000000000000001 has 2 keys attached, the maximum",
		},
		{
			fsm.ErrOwnerHolds, pb.Reason_REASON_TOO_MANY_HOLDS, pb.Reason_REASON_TOO_MANY_HOLDS,
			codes.ResourceExhausted, text(fsm.ErrOwnerHolds),
		},
		{
			fsm.ErrTooManyHolds, pb.Reason_REASON_TOO_MANY_HOLDS,
			pb.Reason_REASON_TOO_MANY_HOLDS, codes.ResourceExhausted, text(fsm.ErrTooManyHolds),
		},
		{fsm.ErrKeyNotFound, noKey, noKey, codes.NotFound, "key not found"},
		{replica.ErrNoLeader, unavailable, unavailable, codes.Unavailable, "replica: no leader"},
		{
			replica.ErrLeaderChanged, unknown, unavailable, codes.Unknown,
			"replica: leader changed",
		},
		{
			context.DeadlineExceeded, unknown, unavailable, codes.Unknown,
			"context deadline exceeded",
		},
		{
			rpctypes.ErrGRPCNoLeader, unavailable, unavailable, codes.Unavailable,
			"etcdserver: no leader",
		},
		{
			rpctypes.ErrGRPCNotSupportedForLearner, unavailable, unavailable, codes.Unavailable,
			"etcdserver: rpc not supported for learner",
		},
		{status.Error(codes.InvalidArgument, "no"), invalid, invalid, codes.InvalidArgument, "no"},
		{errors.New("x"), unknown, unavailable, codes.Unknown, "x"},
	} {
		if r := Reason(tt.err); r != tt.cmd {
			t.Errorf("%v: %v, want %v", tt.err, r, tt.cmd)
		}
		if r := ReadReason(tt.err); r != tt.read {
			t.Errorf("read: %v: %v, want %v", tt.err, r, tt.read)
		}
		s := status.Convert(NativeError(tt.err, tt.cmd))
		if s.Code() != tt.cmdCode || s.Message() != tt.wantDetail {
			t.Errorf("%v: %v %q", tt.err, s.Code(), s.Message())
		}
		if d := Detail(s.Err()); d == nil || d.Reason != tt.cmd || d.Message != tt.wantDetail {
			t.Errorf("%v: details %v", tt.err, d)
		}
	}
	if r := Reason(nil); r != pb.Reason_REASON_UNSPECIFIED {
		t.Errorf("no error: %v", r)
	}
}
