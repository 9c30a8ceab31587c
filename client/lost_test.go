package client

import (
	"context"
	"errors"
	"slices"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
)

// TestLostError checks that if the cluster reported a lease gone, the lease's error says how it
// ended.
func TestLostError(t *testing.T) {
	for _, tt := range []struct {
		result *pb.RenewResult
		want   LostError
		text   string
	}{
		{
			&pb.RenewResult{},
			LostError{},
			"client: the lease is gone: how it ended is unknown",
		},
		{
			&pb.RenewResult{Cause: pb.LeaseEvent_KIND_EXPIRED},
			LostError{Cause: leases.Expired},
			"client: the lease is gone: expired",
		},
		{
			&pb.RenewResult{Cause: pb.LeaseEvent_KIND_REVOKED, By: "ann"},
			LostError{Cause: leases.Revoked, By: "ann"},
			`client: the lease is gone: revoked by "ann"`,
		},
		{
			&pb.RenewResult{Cause: pb.LeaseEvent_KIND_HANDED_OVER, By: "bob"},
			LostError{Cause: leases.HandedOver, Owner: "bob"},
			`client: the lease is gone: handed over to "bob"`,
		},
		{
			&pb.RenewResult{Cause: pb.LeaseEvent_KIND_RESUMED, By: "ann"},
			LostError{Cause: leases.Resumed, Owner: "ann"},
			`client: the lease is gone: resumed by "ann"`,
		},
	} {
		inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
			l, other := grant(t, c, Grant{ID: 7}), grant(t, c, Grant{ID: 8})
			tt.result.Id, tt.result.Reason = 7, pb.Reason_REASON_LEASE_NOT_FOUND
			f.set(func() {
				f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
					if ids := r.GetRenew().GetIds(); !slices.Contains(ids, 7) {
						return f.obey(s, r)
					}
					return []*pb.Response{{Id: r.Id, Body: &pb.Response_Renew{Renew: &pb.RenewResponse{
						Results: []*pb.RenewResult{tt.result, {Id: 8, TtlMs: fakeTTL}},
					}}}}
				}
			})
			<-l.Context().Done()
			is(t, l, ErrLost)
			is(t, other, nil)
			var lost *LostError
			if err := context.Cause(l.Context()); !errors.As(err, &lost) || *lost != tt.want ||
				err.Error() != tt.text {
				t.Errorf("%v, want %q", err, tt.text)
			}
			f.set(func() { f.answer = silent })
			<-other.Context().Done()
			if is(t, other, ErrExpired); errors.Is(other.Err(), ErrLost) {
				t.Errorf("no notice of it: %v", other.Err())
			}
		})
	}
}
