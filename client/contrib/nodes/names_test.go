package nodes_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/contrib/nodes"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestNestedNames checks two sets where one set's name starts with the other's. Either the longer
// name is rejected, or the sets do not list each other's nodes.
func TestNestedNames(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		for _, name := range []string{"n/up", "n/known"} {
			_, err := nodes.New(c, name).Join(ctx, nodes.Config{ID: "1"})
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("set %q, whose keys belong to another: %v", name, err)
			}
		}
		for _, name := range []string{"n/up/x", "n/known/x", "n/order", "n/primary", "up", "n"} {
			s := nodes.New(c, name)
			n := rig.Must[*nodes.Node](t)(s.Join(ctx, nodes.Config{ID: "1", TTL: time.Minute}))
			rig.Must[*nodes.Primacy](t)(n.Primary(ctx))
			if v := rig.Must[nodes.View](t)(s.List(ctx)); len(v.Nodes) != 1 || v.Nodes[0].ID != "1" {
				t.Errorf("nodes of %q: %+v", name, v)
			}
		}
	})
}

// TestReleaseInsideLead checks that the primary can release its role with the context of lead, even
// though that context ends with the role.
func TestReleaseInsideLead(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		c, ctx := rig.New(t, 1).Dial(client.Config{}), rig.Soon(t)
		set := nodes.New(c, "in/nodes")
		n := rig.Must[*nodes.Node](t)(set.Join(ctx, nodes.Config{ID: "n", TTL: time.Minute}))
		for range 10 {
			err := n.Lead(ctx, func(during context.Context, p *nodes.Primacy) error {
				return p.Release(during)
			})
			if err != nil {
				t.Fatalf("released inside lead: %v", err)
			}
		}
	})
}

// TestEmptyName checks that an empty name is rejected.
func TestEmptyName(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		s := nodes.New(c, "")
		_, joined := s.Join(ctx, nodes.Config{ID: "a"})
		_, listed := s.List(ctx)
		for _, err := range []error{joined, listed, s.Switch(ctx, "a"), s.Forget(ctx, "a")} {
			if !errors.Is(err, client.ErrInvalid) {
				t.Error(err)
			}
		}
	})
}
