package native

import (
	"context"
	"errors"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
)

// WhoAmI implements pb.AccessServiceServer. Anyone may call it, even without logging in, because it
// shows whether the caller is logged in. Only an expired or invalid login is rejected, so that
// clients know to log in again.
func (s names) WhoAmI(ctx context.Context, _ *pb.WhoAmIRequest) (*pb.WhoAmIResponse, error) {
	v, a, err := s.viewOfNow(ctx, nil)
	if err != nil {
		return nil, err
	}
	resp := &pb.WhoAmIResponse{Header: s.header(v, v.KV.Revision()), Enabled: v.Access.Enabled()}
	if err := a.checkLogin(); errors.Is(err, access.ErrOldRevision) ||
		errors.Is(err, access.ErrInvalidLogin) {
		return nil, err
	}
	if a.Caller.User == "" {
		return resp, nil
	}
	u, ok := v.Access.UserOf(a.Caller)
	resp.Principal, resp.IsUser = a.Caller.User, ok && a.Caller.Bound == nil
	if s.o.Evidence != nil {
		resp.Evidence, resp.Bound = s.o.Evidence(ctx)
	}
	for _, name := range u.Roles {
		r, _ := v.Access.Role(name) // a missing role grants no permissions
		r.Name = name
		if name == access.Root { // root permits everything, regardless of its permissions
			r.Permissions = everything
		}
		resp.Roles = append(resp.Roles, &pb.Role{
			Name: name, Keys: keyPermissions(&r), Names: namePermissions(&r),
		})
	}
	return resp, nil
}

// everything lists the permissions of the root role.
var everything = []access.Permission{
	{Kind: access.ReadWrite, End: keyrange.NoEnd},
	{Kind: access.Manage, Key: anyName.Key, End: anyName.End},
}

var keyKinds = map[access.Kind]pb.KeyPermission_Kind{
	access.Read: pb.KeyPermission_KIND_READ, access.Write: pb.KeyPermission_KIND_WRITE,
	access.ReadWrite: pb.KeyPermission_KIND_READ_WRITE,
}

func keyPermissions(r *access.Role) (out []*pb.KeyPermission) {
	for _, p := range r.Permissions {
		if kind, ok := keyKinds[p.Kind]; ok {
			out = append(out, &pb.KeyPermission{Kind: kind, Key: []byte(p.Key), RangeEnd: []byte(p.End)})
		}
	}
	return out
}
