package native

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// followerBehind is a member that lags until it queries the leader.
type followerBehind struct {
	*fakeNode
	known   *fsm.View
	counted int
}

// View implements Node.
func (n *followerBehind) View() *fsm.View { return n.known }

// Inspect implements Node.
func (n *followerBehind) Inspect(ctx context.Context, f func(*lease.Lessor)) error {
	n.known = n.fakeNode.View()
	return n.fakeNode.Inspect(ctx, f)
}

// Uses implements Node.
func (n *followerBehind) Uses() []fsm.Use {
	n.counted++
	return n.fakeNode.Uses()
}

// TestRootOfNow checks that information reserved for root is guarded by the current users and
// roles, even on a lagging member, and is not even computed for other users. A caller gets the role
// root and then loses it.
func TestRootOfNow(t *testing.T) {
	n := &followerBehind{fakeNode: guarded(t)}
	n.known = n.fakeNode.View()
	c := pb.NewAccessServiceClient(connected(t, n, Options{}))
	ctx := as(t.Context(), "reader")
	asks := map[string]func() error{
		"ListNames": func() error {
			_, err := c.ListNames(ctx, &pb.ListNamesRequest{})
			return err
		},
		"ListBindings": func() error {
			_, err := c.ListBindings(ctx, &pb.ListBindingsRequest{})
			return err
		},
		"ListLimits": func() error {
			_, err := c.ListLimits(ctx, &pb.ListLimitsRequest{})
			return err
		},
	}
	for name, ask := range asks {
		n.mustDo(t, "root", &fsm.UserGrantRole{User: "reader", Role: "root"})
		if err := ask(); err != nil {
			t.Errorf("%s by a new root: %v", name, err)
		}
		n.mustDo(t, "root", &fsm.UserRevokeRole{User: "reader", Role: "root"})
		before := n.counted
		if err := ask(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s by a former root: %v", name, err)
		}
		if n.counted != before {
			t.Errorf("%s was computed for a caller other than root", name)
		}
	}
}
