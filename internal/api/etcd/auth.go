package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// errHash rejects a request that contains a password hash. In etcd, only members send hashes, to
// each other.
var errHash = status.Error(codes.InvalidArgument,
	"leasehold: set the user's password, not its hash")

// authService serves etcdserverpb.Auth.
type authService struct {
	pb.UnsafeAuthServer
	identity
	node Node
}

// change proposes a command that changes users or roles. It returns the header of the response.
func (s *authService) change(ctx context.Context, c fsm.Command) (*pb.ResponseHeader, error) {
	res, err := propose(ctx, s.node, c)
	if err != nil {
		return nil, err
	}
	return s.headerAt(s.node.View(), res.Revision), nil
}

// read returns a state at least as recent as the start of the call.
func (s *authService) read(ctx context.Context) (*fsm.View, error) {
	if err := s.node.Confirm(ctx); err != nil {
		return nil, api.ReadError(err)
	}
	return s.node.View(), nil
}

// AuthEnable implements pb.AuthServer.
func (s *authService) AuthEnable(
	ctx context.Context, _ *pb.AuthEnableRequest,
) (*pb.AuthEnableResponse, error) {
	h, err := s.change(ctx, &fsm.AuthEnable{})
	return &pb.AuthEnableResponse{Header: h}, err
}

// AuthDisable implements pb.AuthServer.
func (s *authService) AuthDisable(
	ctx context.Context, _ *pb.AuthDisableRequest,
) (*pb.AuthDisableResponse, error) {
	h, err := s.change(ctx, &fsm.AuthDisable{})
	return &pb.AuthDisableResponse{Header: h}, err
}

// AuthStatus implements pb.AuthServer. As in etcd, it does not require a login.
func (s *authService) AuthStatus(
	ctx context.Context, _ *pb.AuthStatusRequest,
) (*pb.AuthStatusResponse, error) {
	v, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.AuthStatusResponse{
		Header: s.header(v), Enabled: v.Access.Enabled(), AuthRevision: v.Access.Revision(),
	}, nil
}

// Authenticate implements pb.AuthServer.
func (s *authService) Authenticate(
	ctx context.Context, r *pb.AuthenticateRequest,
) (*pb.AuthenticateResponse, error) {
	token, err := s.node.LogIn(ctx, r.Name, r.Password)
	if err != nil {
		return nil, api.ReadError(err)
	}
	return &pb.AuthenticateResponse{Header: s.header(s.node.View()), Token: token}, nil
}

// hash returns the hash of a user's password. Hashing is expensive, so only root may request it.
func (s *authService) hash(ctx context.Context, password, hashed string) ([]byte, error) {
	if err := root(ctx, s.node.View()); err != nil {
		return nil, err
	}
	if hashed != "" {
		return nil, errHash
	}
	b, err := s.node.HashPassword(ctx, password)
	return b, api.Error(err)
}

// UserAdd implements pb.AuthServer.
func (s *authService) UserAdd(
	ctx context.Context, r *pb.AuthUserAddRequest,
) (*pb.AuthUserAddResponse, error) {
	c := &fsm.UserAdd{Name: r.Name, NoPassword: r.Options.GetNoPassword()}
	if !c.NoPassword && c.Name != "" {
		var err error
		if c.Hash, err = s.hash(ctx, r.Password, r.HashedPassword); err != nil {
			return nil, err
		}
	}
	h, err := s.change(ctx, c)
	return &pb.AuthUserAddResponse{Header: h}, err
}

// UserGet implements pb.AuthServer. Users other than root may look up only themselves.
func (s *authService) UserGet(
	ctx context.Context, r *pb.AuthUserGetRequest,
) (*pb.AuthUserGetResponse, error) {
	v, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := root(ctx, v); err != nil && (r.Name == "" || api.CallerOf(ctx).User != r.Name) {
		return nil, err
	}
	u, ok := v.Access.User(r.Name)
	if !ok {
		return nil, rpctypes.ErrGRPCUserNotFound
	}
	return &pb.AuthUserGetResponse{Header: s.header(v), Roles: u.Roles}, nil
}

// UserList implements pb.AuthServer.
func (s *authService) UserList(
	ctx context.Context, _ *pb.AuthUserListRequest,
) (*pb.AuthUserListResponse, error) {
	v, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := root(ctx, v); err != nil {
		return nil, err
	}
	return &pb.AuthUserListResponse{Header: s.header(v), Users: v.Access.Users()}, nil
}

// UserDelete implements pb.AuthServer.
func (s *authService) UserDelete(
	ctx context.Context, r *pb.AuthUserDeleteRequest,
) (*pb.AuthUserDeleteResponse, error) {
	h, err := s.change(ctx, &fsm.UserDelete{Name: r.Name})
	return &pb.AuthUserDeleteResponse{Header: h}, err
}

// UserChangePassword implements pb.AuthServer. As in etcd, an empty password disables password
// logins.
func (s *authService) UserChangePassword(
	ctx context.Context, r *pb.AuthUserChangePasswordRequest,
) (*pb.AuthUserChangePasswordResponse, error) {
	c := &fsm.UserPassword{Name: r.Name}
	if r.Password != "" || r.HashedPassword != "" {
		var err error
		if c.Hash, err = s.hash(ctx, r.Password, r.HashedPassword); err != nil {
			return nil, err
		}
	}
	h, err := s.change(ctx, c)
	return &pb.AuthUserChangePasswordResponse{Header: h}, err
}

// UserGrantRole implements pb.AuthServer.
func (s *authService) UserGrantRole(
	ctx context.Context, r *pb.AuthUserGrantRoleRequest,
) (*pb.AuthUserGrantRoleResponse, error) {
	h, err := s.change(ctx, &fsm.UserGrantRole{User: r.User, Role: r.Role})
	return &pb.AuthUserGrantRoleResponse{Header: h}, err
}

// UserRevokeRole implements pb.AuthServer.
func (s *authService) UserRevokeRole(
	ctx context.Context, r *pb.AuthUserRevokeRoleRequest,
) (*pb.AuthUserRevokeRoleResponse, error) {
	h, err := s.change(ctx, &fsm.UserRevokeRole{User: r.Name, Role: r.Role})
	return &pb.AuthUserRevokeRoleResponse{Header: h}, err
}

// RoleAdd implements pb.AuthServer.
func (s *authService) RoleAdd(
	ctx context.Context, r *pb.AuthRoleAddRequest,
) (*pb.AuthRoleAddResponse, error) {
	h, err := s.change(ctx, &fsm.RoleAdd{Name: r.Name})
	return &pb.AuthRoleAddResponse{Header: h}, err
}

// RoleGet implements pb.AuthServer. Users other than root may look up only their own roles.
func (s *authService) RoleGet(
	ctx context.Context, r *pb.AuthRoleGetRequest,
) (*pb.AuthRoleGetResponse, error) {
	v, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := root(ctx, v); err != nil && !v.Access.HasRole(api.CallerOf(ctx), r.Role) {
		return nil, err
	}
	role, ok := v.Access.Role(r.Role)
	if !ok {
		return nil, rpctypes.ErrGRPCRoleNotFound
	}
	if role.Name == access.Root { // root may do anything, regardless of its permissions
		role.Permissions = []access.Permission{{Kind: access.ReadWrite, End: "\x00"}}
	}
	resp := &pb.AuthRoleGetResponse{Header: s.header(v)}
	for _, p := range role.Permissions {
		if p.Kind > access.ReadWrite {
			continue // a permission on lease names, which etcd does not have
		}
		resp.Perm = append(resp.Perm, &authpb.Permission{
			PermType: authpb.Permission_Type(p.Kind), Key: []byte(p.Key), RangeEnd: []byte(p.End),
		})
	}
	return resp, nil
}

// RoleList implements pb.AuthServer.
func (s *authService) RoleList(
	ctx context.Context, _ *pb.AuthRoleListRequest,
) (*pb.AuthRoleListResponse, error) {
	v, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if err := root(ctx, v); err != nil {
		return nil, err
	}
	return &pb.AuthRoleListResponse{Header: s.header(v), Roles: v.Access.Roles()}, nil
}

// RoleDelete implements pb.AuthServer.
func (s *authService) RoleDelete(
	ctx context.Context, r *pb.AuthRoleDeleteRequest,
) (*pb.AuthRoleDeleteResponse, error) {
	h, err := s.change(ctx, &fsm.RoleDelete{Name: r.Role})
	return &pb.AuthRoleDeleteResponse{Header: h}, err
}

// RoleGrantPermission implements pb.AuthServer.
func (s *authService) RoleGrantPermission(
	ctx context.Context, r *pb.AuthRoleGrantPermissionRequest,
) (*pb.AuthRoleGrantPermissionResponse, error) {
	p := r.Perm
	switch {
	case p == nil:
		return nil, rpctypes.ErrGRPCPermissionNotGiven
	case p.PermType < authpb.READ || p.PermType > authpb.READWRITE:
		return nil, rpctypes.ErrGRPCInvalidAuthMgmt
	}
	h, err := s.change(ctx, &fsm.RoleGrant{Role: r.Name, Permission: access.Permission{
		Kind: access.Kind(p.PermType), Key: string(p.Key), End: string(p.RangeEnd),
	}})
	return &pb.AuthRoleGrantPermissionResponse{Header: h}, err
}

// RoleRevokePermission implements pb.AuthServer.
func (s *authService) RoleRevokePermission(
	ctx context.Context, r *pb.AuthRoleRevokePermissionRequest,
) (*pb.AuthRoleRevokePermissionResponse, error) {
	h, err := s.change(ctx, &fsm.RoleRevoke{
		Role: r.Role, Key: string(r.Key), End: string(r.RangeEnd),
	})
	return &pb.AuthRoleRevokePermissionResponse{Header: h}, err
}
