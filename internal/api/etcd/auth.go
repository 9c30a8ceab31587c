package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
)

// errNoUsers answers what would make the first user or role.
var errNoUsers = status.Error(codes.Unimplemented, "leasehold: users and roles are not there yet")

// authService serves etcdserverpb.Auth as an etcd without users and roles,
// whose authentication was never enabled.
type authService struct {
	pb.UnsafeAuthServer
	identity
	node Reader
}

func (s *authService) header() *pb.ResponseHeader { return s.identity.header(s.node.View()) }

// AuthEnable implements pb.AuthServer.
func (s *authService) AuthEnable(
	context.Context, *pb.AuthEnableRequest,
) (*pb.AuthEnableResponse, error) {
	return nil, rpctypes.ErrGRPCRootUserNotExist
}

// AuthDisable implements pb.AuthServer.
func (s *authService) AuthDisable(
	context.Context, *pb.AuthDisableRequest,
) (*pb.AuthDisableResponse, error) {
	return &pb.AuthDisableResponse{Header: s.header()}, nil
}

// AuthStatus implements pb.AuthServer.
func (s *authService) AuthStatus(
	context.Context, *pb.AuthStatusRequest,
) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: s.header(), AuthRevision: 1}, nil
}

// Authenticate implements pb.AuthServer.
func (s *authService) Authenticate(
	ctx context.Context, _ *pb.AuthenticateRequest,
) (*pb.AuthenticateResponse, error) {
	if err := s.node.Confirm(ctx); err != nil {
		return nil, api.ReadError(err)
	}
	return nil, rpctypes.ErrGRPCAuthNotEnabled
}

// UserAdd implements pb.AuthServer.
func (s *authService) UserAdd(
	_ context.Context, r *pb.AuthUserAddRequest,
) (*pb.AuthUserAddResponse, error) {
	if r.Name == "" {
		return nil, rpctypes.ErrGRPCUserEmpty
	}
	return nil, errNoUsers
}

// UserGet implements pb.AuthServer.
func (s *authService) UserGet(
	context.Context, *pb.AuthUserGetRequest,
) (*pb.AuthUserGetResponse, error) {
	return nil, rpctypes.ErrGRPCUserNotFound
}

// UserList implements pb.AuthServer.
func (s *authService) UserList(
	context.Context, *pb.AuthUserListRequest,
) (*pb.AuthUserListResponse, error) {
	return &pb.AuthUserListResponse{Header: s.header()}, nil
}

// UserDelete implements pb.AuthServer.
func (s *authService) UserDelete(
	context.Context, *pb.AuthUserDeleteRequest,
) (*pb.AuthUserDeleteResponse, error) {
	return nil, rpctypes.ErrGRPCUserNotFound
}

// UserChangePassword implements pb.AuthServer.
func (s *authService) UserChangePassword(
	context.Context, *pb.AuthUserChangePasswordRequest,
) (*pb.AuthUserChangePasswordResponse, error) {
	return nil, rpctypes.ErrGRPCUserNotFound
}

// UserGrantRole implements pb.AuthServer.
func (s *authService) UserGrantRole(
	context.Context, *pb.AuthUserGrantRoleRequest,
) (*pb.AuthUserGrantRoleResponse, error) {
	return nil, rpctypes.ErrGRPCUserNotFound
}

// UserRevokeRole implements pb.AuthServer.
func (s *authService) UserRevokeRole(
	context.Context, *pb.AuthUserRevokeRoleRequest,
) (*pb.AuthUserRevokeRoleResponse, error) {
	return nil, rpctypes.ErrGRPCUserNotFound
}

// RoleAdd implements pb.AuthServer.
func (s *authService) RoleAdd(
	_ context.Context, r *pb.AuthRoleAddRequest,
) (*pb.AuthRoleAddResponse, error) {
	if r.Name == "" {
		return nil, rpctypes.ErrGRPCRoleEmpty
	}
	return nil, errNoUsers
}

// RoleGet implements pb.AuthServer.
func (s *authService) RoleGet(
	context.Context, *pb.AuthRoleGetRequest,
) (*pb.AuthRoleGetResponse, error) {
	return nil, rpctypes.ErrGRPCRoleNotFound
}

// RoleList implements pb.AuthServer.
func (s *authService) RoleList(
	context.Context, *pb.AuthRoleListRequest,
) (*pb.AuthRoleListResponse, error) {
	return &pb.AuthRoleListResponse{Header: s.header()}, nil
}

// RoleDelete implements pb.AuthServer.
func (s *authService) RoleDelete(
	context.Context, *pb.AuthRoleDeleteRequest,
) (*pb.AuthRoleDeleteResponse, error) {
	return nil, rpctypes.ErrGRPCRoleNotFound
}

// RoleGrantPermission implements pb.AuthServer.
func (s *authService) RoleGrantPermission(
	_ context.Context, r *pb.AuthRoleGrantPermissionRequest,
) (*pb.AuthRoleGrantPermissionResponse, error) {
	if r.Perm == nil {
		return nil, rpctypes.ErrGRPCPermissionNotGiven
	}
	return nil, rpctypes.ErrGRPCRoleNotFound
}

// RoleRevokePermission implements pb.AuthServer.
func (s *authService) RoleRevokePermission(
	context.Context, *pb.AuthRoleRevokePermissionRequest,
) (*pb.AuthRoleRevokePermissionResponse, error) {
	return nil, rpctypes.ErrGRPCRoleNotFound
}
