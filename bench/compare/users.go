package compare

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/load"
)

// token is sent with each call. It is "" if access control is off.
type token string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if t == "" {
		return nil, nil
	}
	return map[string]string{"token": string(t)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (token) RequireTransportSecurity() bool { return false }

const (
	rootUser = "root" // the name of the user and its role
	userRole = "writes-all"
	password = "a password"
)

// restrict creates users with permission to read and write every key, enables access control, and
// logs in the users. A restart of the server invalidates their tokens.
func (s *Server) restrict(ctx context.Context) error {
	c := pb.NewAuthClient(s.members[0].control.Conn(0))
	if err := s.makeUsers(ctx, c); err != nil {
		return err
	}
	if _, err := c.AuthEnable(ctx, &pb.AuthEnableRequest{}); err != nil {
		return err
	}
	logIn := func(name string) (string, error) {
		r, err := c.Authenticate(ctx, &pb.AuthenticateRequest{Name: name, Password: password})
		return r.GetToken(), err
	}
	for i := range s.Target.Users {
		t, err := logIn(userName(i))
		if err != nil {
			return err
		}
		s.tokens = append(s.tokens, t)
	}
	root, err := logIn(rootUser)
	if err != nil {
		return err
	}
	for _, m := range s.members {
		old := m.control
		if m.control, err = dial([]string{m.endpoint}, 1, root); err != nil {
			m.control = old
			return err
		}
		if err := old.Close(); err != nil {
			return err
		}
	}
	return nil
}

func userName(i int) string { return fmt.Sprintf("user-%d", i) }

// makeUsers creates root, the role, and the users with that role.
func (s *Server) makeUsers(ctx context.Context, c pb.AuthClient) error {
	_, err1 := c.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: rootUser})
	_, err2 := c.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: userRole})
	everything := []byte{0}
	_, err3 := c.RoleGrantPermission(ctx, &pb.AuthRoleGrantPermissionRequest{
		Name: userRole,
		Perm: &authpb.Permission{
			PermType: authpb.READWRITE, Key: everything, RangeEnd: everything,
		},
	})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	add := func(name, role string) error {
		_, err := c.UserAdd(ctx, &pb.AuthUserAddRequest{Name: name, Password: password})
		if err == nil {
			_, err = c.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: name, Role: role})
		}
		return err
	}
	if err := add(rootUser, rootUser); err != nil {
		return err
	}
	return load.Spread(ctx, 8, s.Target.Users, func(ctx context.Context, _, i int) error {
		return add(userName(i), userRole)
	})
}
