package members_test

import (
	"errors"
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/members"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestEmptyName checks that an empty group name is rejected.
func TestEmptyName(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		g := members.New(c, "")
		_, registered := join(ctx, g, registration{ID: "a"})
		_, _, listed := g.List(ctx)
		_, watched := g.Watch(ctx)
		for _, err := range []error{registered, listed, watched} {
			if !errors.Is(err, client.ErrInvalid) {
				t.Error(err)
			}
		}
	})
}
