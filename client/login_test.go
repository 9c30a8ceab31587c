package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
)

// authConn is a connection to a member that issues a token for the password "secret".
type authConn struct {
	grpc.ClientConnInterface
	logins int
	err    error
}

func (c *authConn) Invoke(
	_ context.Context, method string, request, response any, _ ...grpc.CallOption,
) error {
	var r etcdserverpb.AuthenticateRequest
	if err := proto.Unmarshal(request.([]byte), &r); err != nil {
		return err
	}
	c.logins++
	switch {
	case c.err != nil:
		return c.err
	case method != etcdserverpb.Auth_Authenticate_FullMethodName || r.Password != "secret":
		return rpctypes.ErrGRPCAuthFailed
	}
	b, err := proto.Marshal(&etcdserverpb.AuthenticateResponse{
		Header: &etcdserverpb.ResponseHeader{Revision: 7}, Token: "token of " + r.Name,
	})
	*response.(*[]byte) = b
	return err
}

// sent returns the token that the client sends to a member.
func sent(t *testing.T, l *logins, c grpc.ClientConnInterface) string {
	t.Helper()
	ctx, token, err := l.context(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	if list := md.Get(keyToken); token == "" && len(list) > 0 ||
		token != "" && (len(list) != 1 || list[0] != token) {
		t.Errorf("token %q, sent %q", token, list)
	}
	return token
}

// TestLogIn checks that the client logs in once for many connections, and again when a member
// rejects the token.
func TestLogIn(t *testing.T) {
	c := new(authConn)
	l := &logins{user: "bob", password: "secret"}
	for range 3 {
		if token := sent(t, l, c); token != "token of bob" {
			t.Errorf("token %q", token)
		}
	}
	if c.logins != 1 {
		t.Errorf("%d logins for three connections", c.logins)
	}
	err := l.refused("older token", rpctypes.ErrGRPCInvalidAuthToken)
	if errors.Is(err, ErrNotLoggedIn) {
		t.Error("a token that is refused is taken for a wrong password")
	}
	sent(t, l, c)
	_ = l.refused("token of bob", rpctypes.ErrGRPCInvalidAuthToken)
	if sent(t, l, c); c.logins != 2 {
		t.Errorf("%d logins after the token was refused", c.logins)
	}
}

// hung is a connection to a member that never answers.
type hung struct{ grpc.ClientConnInterface }

func (hung) Invoke(ctx context.Context, _ string, _, _ any, _ ...grpc.CallOption) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestLogInBesideHungMember checks that the client can connect to another member while its login to
// a hung member is still pending.
func TestLogInBesideHungMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logins{user: "bob", password: "secret"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		over := make(chan error, 1)
		go func() {
			_, _, err := l.context(ctx, hung{})
			over <- err
		}()
		synctest.Wait()
		if token := sent(t, l, new(authConn)); token != "token of bob" {
			t.Errorf("token %q", token)
		}
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("the login at the member that hangs: %v", err)
		}
		if token := sent(t, l, new(authConn)); token != "token of bob" {
			t.Errorf("token %q after that", token)
		}
	})
}

// TestLogInRefused checks a rejected login, and a login to a cluster without users.
func TestLogInRefused(t *testing.T) {
	c := new(authConn)
	l := &logins{user: "bob", password: "wrong"}
	_, _, err := l.context(t.Context(), c)
	if !errors.Is(err, ErrNotLoggedIn) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong password: %v", err)
	}
	c.err = rpctypes.ErrGRPCAuthNotEnabled
	if token := sent(t, l, c); token != "" {
		t.Errorf("token %q of a cluster without users", token)
	}
	c.err = rpctypes.ErrGRPCNoLeader
	if _, _, err := l.context(t.Context(), c); err == nil || errors.Is(err, ErrNotLoggedIn) {
		t.Errorf("without a leader: %v", err)
	}
	fixed := &logins{fixed: "x"}
	err = fixed.refused(sent(t, fixed, c), rpctypes.ErrGRPCInvalidAuthToken)
	if !errors.Is(err, ErrNotLoggedIn) {
		t.Errorf("a token that is not taken: %v", err)
	}
}

// TestTokenFile checks that the token file is read again when it changes.
func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	l := &logins{file: file}
	if _, _, err := l.context(t.Context(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(" "+token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := sent(t, l, nil); got != token {
			t.Errorf("token %q of the file with %q", got, token)
		}
	}
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.context(t.Context(), nil); err == nil {
		t.Error("an empty file has a token")
	}
}

// TestLoginConfig checks that contradictory login settings are rejected.
func TestLoginConfig(t *testing.T) {
	for _, c := range []Config{
		{User: "bob", Token: "x"}, {Token: "x", TokenFile: "y"}, {Password: "x"},
	} {
		c.Endpoints = []string{"a:1"}
		if _, err := New(c); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// refusing is a connection to a member that rejects the login until taken is set.
type refusing struct {
	connection
	taken *atomic.Bool
	tries *atomic.Int64
}

// Open implements connection.
func (c refusing) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	if c.tries.Add(1); !c.taken.Load() {
		return nil, ErrNotLoggedIn
	}
	return c.connection.Open(ctx)
}

// TestLoginRefusedAtOnce checks that calls fail immediately when a member rejects the login,
// instead of waiting for another member. The client retries infrequently, and continues once the
// login is accepted.
func TestLoginRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(fake)
		f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
			return []*pb.Response{{
				Id: r.Id, Body: &pb.Response_ReadRange{ReadRange: &pb.RangeResponse{}},
			}}
		}
		var taken atomic.Bool
		var tries atomic.Int64
		list := []endpoint{{text: "a"}, {text: "b"}}
		c, err := start(Config{User: "bob"}, list, func(e endpoint, _ *settings) (connection, error) {
			return refusing{fakeConn{f, e.text}, &taken, &tries}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		begun := time.Now()
		if _, err := c.Range(t.Context(), store.Range{Key: "k"}); !errors.Is(err, ErrNotLoggedIn) {
			t.Errorf("a call of a client whose login is refused: %v", err)
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it has taken %s", took)
		}
		time.Sleep(time.Minute)
		if n := tries.Load(); n < 12 || n > 2*14 {
			t.Errorf("%d tries in a minute", n)
		}
		taken.Store(true)
		time.Sleep(loginPause)
		synctest.Wait() // run the attempt that is due now
		if _, err := c.Range(t.Context(), store.Range{Key: "k"}); err != nil {
			t.Errorf("after the login was taken: %v", err)
		}
	})
}
