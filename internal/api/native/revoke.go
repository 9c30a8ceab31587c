package native

import (
	"context"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// revoke revokes leases. The revocations use consecutive numbers, starting with n.
func (s *leases) revoke(
	ctx context.Context, r *pb.RevokeRequest, n number,
) (*pb.RevokeResponse, error) {
	if err := checkRefs(r.Leases, checkAnyRef); err != nil {
		return nil, err
	}
	by := s.authorizer(ctx).name(ctx)
	commands := make([]fsm.Command, len(r.Leases))
	for i, ref := range r.Leases {
		commands[i] = n.plus(i).once(&fsm.Revoke{
			ID: lease.ID(ref.Id), Name: ref.Name, Token: lease.Token(ref.Token), By: by,
		})
	}
	resp := &pb.RevokeResponse{Results: make([]*pb.RevokeResult, len(commands))}
	for i, o := range s.node.ProposeAll(ctx, commands) {
		err := o.Err
		if err == nil {
			err = o.Result.Err
		}
		resp.Results[i] = &pb.RevokeResult{Id: r.Leases[i].Id, Reason: api.Reason(err)}
	}
	resp.Header = s.headerNow()
	return resp, nil
}
