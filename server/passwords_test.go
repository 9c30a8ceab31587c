package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/test/virtual"
)

// TestShortPasswordIsRefused checks that new and changed passwords need at least
// --min-password-length characters, 8 by default (CVE-2020-15115 of etcd).
func TestShortPasswordIsRefused(t *testing.T) { virtual.Test(t, testShortPasswordIsRefused) }

func testShortPasswordIsRefused(t *testing.T) {
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
		if err != nil && !strings.Contains(err.Error(), "must have at least 8 characters") {
			t.Errorf("%q: %v does not say what to do", step.password, err)
		}
	}
}

// TestFailedLoginsAreLimited checks that failed logins over gRPC and JSON share one limit, whatever
// address a gateway client claims. The error explains the limit, and a metric counts rejected
// logins.
func TestFailedLoginsAreLimited(t *testing.T) { virtual.Test(t, testFailedLoginsAreLimited) }

func testFailedLoginsAreLimited(t *testing.T) {
	c := cheapConfig(shortDir(t))
	c.Access.MaxFailedLogins = 4
	r := run(t, c)
	withUsers(t, r)
	socket := r.cfg.URLs.ListenClient[0].Path
	auth := pb.NewAuthClient(dial(t, socket, nil))
	grpc := func(user, password string) error {
		_, err := auth.Authenticate(t.Context(),
			&pb.AuthenticateRequest{Name: user, Password: password})
		return err
	}
	gateway := webClient(t, socket)
	viaJSON := func(from string) int {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://m/v3/auth/authenticate", strings.NewReader(`{"name":"alice","password":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Grpc-Metadata-X-Forwarded-For", from)
		q.Header.Set("X-Forwarded-For", from)
		resp, err := gateway.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	for range 2 {
		if err := grpc("alice", "x"); status.Code(err) != codes.InvalidArgument {
			t.Errorf("over gRPC: %v", err)
		}
	}
	for i, want := range []int{400, 400, 429, 429} {
		if got := viaJSON(fmt.Sprintf("10.0.0.%d", i)); got != want {
			t.Errorf("over JSON, the %d. time: %d", i+1, got)
		}
	}
	err := grpc("alice", "alice")
	if status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "too many logins failed") {
		t.Errorf("the right password: %v", err)
	}
	counted := r.measured(t, "leasehold_logins_total")
	for outcome, want := range map[string]float64{"refused": 4, "limited": 3, "accepted": 0} {
		if counted[outcome] != want {
			t.Errorf("%s: %v, want %v", outcome, counted[outcome], want)
		}
	}
}
