package native

import (
	"context"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// names serves leasehold.v1.AccessService. Its commands require the root role when they are
// applied.
type names struct {
	pb.UnsafeAccessServiceServer
	*leases
}

var _ pb.AccessServiceServer = names{}

var nameKinds = map[pb.NamePermission_Kind]access.Kind{
	pb.NamePermission_KIND_SEE: access.See, pb.NamePermission_KIND_HOLD: access.Hold,
	pb.NamePermission_KIND_MANAGE: access.Manage,
}

// anyName is the range of all names. No name is empty.
var anyName = keyrange.Range{Key: "\x00", End: keyrange.NoEnd}

// namesOf returns the range of names that a request refers to.
func namesOf(name string, prefix bool) (keyrange.Range, error) {
	switch {
	case prefix && name == "":
		return anyName, nil
	case prefix:
		return keyrange.OfPrefix(name), checkText("name", name)
	case name == "":
		return keyrange.Range{}, invalid("the name is empty: set prefix for all names")
	default:
		return keyrange.Range{Key: name}, checkText("name", name)
	}
}

// GrantNames implements pb.AccessServiceServer.
func (s names) GrantNames(
	ctx context.Context, r *pb.GrantNamesRequest,
) (*pb.GrantNamesResponse, error) {
	p := r.GetPermission()
	of, err := namesOf(p.GetName(), p.GetPrefix())
	if err != nil {
		return nil, err
	}
	kind, ok := nameKinds[p.GetKind()]
	if !ok {
		return nil, invalid("unknown kind %d", p.GetKind())
	}
	res, err := s.propose(ctx, &fsm.RoleGrant{
		Role: p.GetRole(), Permission: access.Permission{Kind: kind, Key: of.Key, End: of.End},
	})
	if err != nil {
		return nil, err
	}
	return &pb.GrantNamesResponse{Header: s.header(s.node.View(), res.Revision)}, nil
}

// RevokeNames implements pb.AccessServiceServer.
func (s names) RevokeNames(
	ctx context.Context, r *pb.RevokeNamesRequest,
) (*pb.RevokeNamesResponse, error) {
	of, err := namesOf(r.Name, r.Prefix)
	if err != nil {
		return nil, err
	}
	res, err := s.propose(ctx, &fsm.RoleRevoke{
		Role: r.Role, Key: of.Key, End: of.End, Names: true,
	})
	if err != nil {
		return nil, err
	}
	return &pb.RevokeNamesResponse{Header: s.header(s.node.View(), res.Revision)}, nil
}

// ListNames implements pb.AccessServiceServer.
func (s names) ListNames(
	ctx context.Context, r *pb.ListNamesRequest,
) (*pb.ListNamesResponse, error) {
	v, err := s.viewOfRoot(ctx, nil)
	if err != nil {
		return nil, err
	}
	roles := v.Access.Roles()
	if r.Role != "" {
		roles = []string{r.Role}
	}
	resp := &pb.ListNamesResponse{Header: s.header(v, v.KV.Revision())}
	for _, name := range roles {
		role, ok := v.Access.Role(name)
		if !ok {
			return nil, access.ErrRoleNotFound
		}
		resp.Permissions = append(resp.Permissions, namePermissions(&role)...)
	}
	return resp, nil
}

// viewOfNow returns a linearizable view, and the caller together with the users and roles of that
// view. If look is not nil, the core calls it first.
func (s names) viewOfNow(
	ctx context.Context, look func(*lease.Lessor),
) (*fsm.View, authorizer, error) {
	if err := s.node.Inspect(ctx, look); err != nil {
		return nil, authorizer{}, err
	}
	v := s.node.View()
	return v, authorizerOf(ctx, v), nil
}

// viewOfRoot is viewOfNow for callers with the root role.
func (s names) viewOfRoot(ctx context.Context, look func(*lease.Lessor)) (*fsm.View, error) {
	v, a, err := s.viewOfNow(ctx, look)
	if err == nil {
		err = a.State.CheckRoot(a.Caller)
	}
	return v, err
}

// ListBindings implements pb.AccessServiceServer.
func (s names) ListBindings(
	ctx context.Context, _ *pb.ListBindingsRequest,
) (*pb.ListBindingsResponse, error) {
	v, err := s.viewOfRoot(ctx, nil)
	if err != nil {
		return nil, err
	}
	resp := &pb.ListBindingsResponse{Header: s.header(v, v.KV.Revision())}
	s.o.Bindings.Describe(resp)
	return resp, nil
}

func namePermissions(r *access.Role) (out []*pb.NamePermission) {
	for _, p := range r.Permissions {
		for kind, k := range nameKinds {
			if p.Kind != k {
				continue
			}
			m := &pb.NamePermission{Role: r.Name, Kind: kind, Name: p.Key, Prefix: p.End != ""}
			if p.Range() == anyName {
				m.Name = ""
			}
			out = append(out, m)
		}
	}
	return out
}
