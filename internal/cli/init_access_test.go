package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/inprocess"
)

// TestInitAccessIsUndone checks that init-access leaves no users or roles behind when it fails
// halfway, so that it can be retried. It fails because the member requires longer passwords than
// the generated ones.
func TestInitAccessIsUndone(t *testing.T) {
	t.Parallel()
	c := inprocess.Config(inprocess.Dir(t), "m")
	c.Access.MinPassword = 60
	m := inprocess.Start(t, c)
	m.Await()
	var out, errs bytes.Buffer
	code := Main(app.Process{
		Args:   []string{"init-access", "--endpoints", m.Endpoint()},
		Stdout: &out, Stderr: &errs,
	})
	if code != app.ExitFailure || !strings.Contains(errs.String(), "at least 60 characters") ||
		out.Len() > 0 {
		t.Errorf("exit code %d, output %q, errors %q", code, out.String(), errs.String())
	}
	ctl, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.Endpoint()}, DialTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	users, err := ctl.UserList(t.Context())
	if err != nil || len(users.Users) > 0 {
		t.Errorf("users are left: %v, %v", users, err)
	}
	roles, err := ctl.RoleList(t.Context())
	if err != nil || len(roles.Roles) > 0 {
		t.Errorf("roles are left: %v, %v", roles, err)
	}
}
