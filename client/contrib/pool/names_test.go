package pool_test

import (
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestNestedNames checks that a pool does not see the keys of another pool whose name starts with
// its own.
func TestNestedNames(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for _, name := range []string{"x/held", "x/was", "x"} {
			p := rig.Must[*pool.Pool](t)(pool.Create(ctx, c, name, pool.Spec{First: 1, Last: 1}))
			acquire(t, p, pool.Request{TTL: time.Minute})
			if l := rig.Must[[]pool.Entry](t)(p.List(ctx)); len(l) != 1 || l[0].ID != "1" {
				t.Errorf("pool %q lists %+v", name, l)
			}
		}
	})
}

// TestEmptyName checks that an empty name is rejected.
func TestEmptyName(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		_, made := pool.Create(ctx, c, "", pool.Spec{First: 1, Last: 1})
		_, opened := pool.Open(ctx, c, "")
		if !errors.Is(made, client.ErrInvalid) || !errors.Is(opened, client.ErrInvalid) {
			t.Errorf("create: %v, open: %v", made, opened)
		}
	})
}
