package server

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/login"
	"leasehold.dev/test/virtual"
)

// catchUp lets a member know all that was done before.
func catchUp(t testing.TB, r *running) {
	t.Helper()
	if err := r.node.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A member that has not heard yet that access control is disabled refuses no token for it.
func TestTokenWhileDisabling(t *testing.T) { virtual.Test(t, testTokenWhileDisabling) }

func testTokenWhileDisabling(t *testing.T) {
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	late := make(chan struct{})
	tokens := checkedLate{r.node.logins.tokens, func() {
		select {
		case <-late:
		default:
			r.asRoot(t, &fsm.AuthDisable{})
			close(late)
		}
	}}
	l := *r.node.logins
	l.tokens = tokens
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("token", "x"))
	if c, err := l.caller(ctx); err != nil || c != (identified{}) {
		t.Errorf("%+v, %v", c, err)
	}
}

// checkedLate has something happen just before a token is checked.
type checkedLate struct {
	login.Provider
	before func()
}

func (c checkedLate) Check(token string, u login.Users) (login.Caller, error) {
	c.before()
	return c.Provider.Check(token, u)
}

// A caller that waits for a lock goes on waiting when other users change, or it could not even
// leave the queue. The wait ends with the password.
func TestWhoWaits(t *testing.T) { virtual.Test(t, testWhoWaits) }

func testWhoWaits(t *testing.T) {
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	for _, method := range []string{
		v3lockpb.Lock_Lock_FullMethodName, v3electionpb.Election_Campaign_FullMethodName,
	} {
		hash, err := r.node.HashPassword(t.Context(), "alice")
		if err != nil {
			t.Fatal(err)
		}
		r.asRoot(t, &fsm.UserPassword{Name: "alice", Hash: hash})
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("token", r.token(t, "alice")))
		known := func(ctx context.Context) error {
			return r.node.View().Access.CheckKnown(api.CallerOf(ctx))
		}
		ctx, leave, err := doors{logins: r.node.logins}.enter(ctx, nil, method)
		if err != nil {
			t.Fatal(err)
		}
		r.asRoot(t, &fsm.RoleAdd{Name: method})
		if err := known(ctx); err != nil {
			t.Errorf("%s: another role: %v", method, err)
		}
		r.asRoot(t, &fsm.UserPassword{Name: "alice", Hash: []byte("x")})
		if err := known(ctx); !errors.Is(err, access.ErrInvalidLogin) {
			t.Errorf("%s: another password: %v", method, err)
		}
		leave()
	}
}

// What somebody asks for who has not logged in is refused before it costs a place in the log, for
// which there is no room here.
func TestNobodyWritesNoLog(t *testing.T) { virtual.Test(t, testNobodyWritesNoLog) }

func testNobodyWritesNoLog(t *testing.T) {
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	r.node.writer.full.Store(true)
	for _, c := range []fsm.Command{
		&fsm.Put{Key: "a", Value: make([]byte, 1<<10)}, &fsm.UserAdd{Name: "x"},
	} {
		if res, err := r.node.Propose(t.Context(), c); err != nil ||
			!errors.Is(res.Err, access.ErrUserEmpty) {
			t.Errorf("%T: %v, %v", c, res.Err, err)
		}
		for _, o := range r.node.ProposeAll(t.Context(), []fsm.Command{c, c}) {
			if o.Err != nil || !errors.Is(o.Result.Err, access.ErrUserEmpty) {
				t.Errorf("%T among others: %+v", c, o)
			}
		}
	}
}

// A name that no token can carry is refused at once: it is neither logged nor held.
func TestLongNameLogsInNot(t *testing.T) { virtual.Test(t, testLongNameLogsInNot) }

func testLongNameLogsInNot(t *testing.T) {
	r := run(t, cheapConfig(shortDir(t)))
	withUsers(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a call that has to wait for anything is refused for this
	long := strings.Repeat("x", login.MaxName+1)
	if _, err := r.node.LogIn(ctx, long, "x"); !errors.Is(err, login.ErrRefused) {
		t.Error(err)
	}
}
