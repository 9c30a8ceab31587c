package server

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A new password has at least --min-password-length characters, 8 unless told otherwise
// (CVE-2020-15115 of etcd): also one that is changed, and that of the first users.
func TestShortPasswordIsRefused(t *testing.T) {
	t.Parallel()
	c := cheapConfig(t.TempDir())
	c.Access.MinPassword = DefaultConfig().Access.MinPassword
	r := run(t, c)
	auth := pb.NewAuthClient(dial(t, r.cfg.URLs.ListenClient[0].Path, nil))
	add := func(password string) error {
		_, err := auth.UserAdd(t.Context(), &pb.AuthUserAddRequest{Name: "bob", Password: password})
		return err
	}
	change := func(password string) error {
		_, err := auth.UserChangePassword(t.Context(),
			&pb.AuthUserChangePasswordRequest{Name: "bob", Password: password})
		return err
	}
	for _, step := range []struct {
		do       func(string) error
		password string
		code     codes.Code
	}{
		{add, "", codes.InvalidArgument},
		{add, "1234567", codes.InvalidArgument},
		{add, "12345678", codes.OK},
		{change, "1234567", codes.InvalidArgument},
		{change, "12345679", codes.OK},
	} {
		err := step.do(step.password)
		if status.Code(err) != step.code {
			t.Errorf("%q: %v", step.password, err)
		}
		if err != nil && !strings.Contains(err.Error(), "needs at least 8 characters") {
			t.Errorf("%q: %v does not say what to do", step.password, err)
		}
	}
}
