package server

import (
	"errors"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/virtual"
)

// catchUp waits until a member has applied everything committed before the call.
func catchUp(t testing.TB, r *running) {
	t.Helper()
	if err := r.node.Confirm(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestAnonymousNotLogged checks that a command from an anonymous caller is rejected before it is
// appended to the log. The disk is full here.
func TestAnonymousNotLogged(t *testing.T) { virtual.Test(t, testAnonymousNotLogged) }

func testAnonymousNotLogged(t *testing.T) {
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
		ended := api.WithCaller(t.Context(), access.InvalidLogin)
		if res, err := r.node.Propose(ended, c); err != nil ||
			!errors.Is(res.Err, access.ErrInvalidLogin) {
			t.Errorf("%T after the login ended: %v, %v", c, res.Err, err)
		}
		for _, o := range r.node.ProposeAll(t.Context(), []fsm.Command{c, c}) {
			if o.Err != nil || !errors.Is(o.Result.Err, access.ErrUserEmpty) {
				t.Errorf("%T among others: %+v", c, o)
			}
		}
	}
}
