package native

import (
	"context"
	"errors"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// lateNode is a member that inspects the leases after Inspect has returned.
type lateNode struct {
	*fakeNode
	looks sync.WaitGroup
}

func (n *lateNode) Inspect(ctx context.Context, f func(*lease.Lessor)) error {
	if f != nil {
		n.looks.Go(func() { f(n.machine.Lessor()) })
	}
	return ctx.Err()
}

func (n *lateNode) InspectLeases(
	ctx context.Context, ids []lease.ID, f func(*lease.Lessor, []replica.Left),
) error {
	return n.Inspect(ctx, func(l *lease.Lessor) { f(l, make([]replica.Left, len(ids))) })
}

// TestLateLook checks that a call that returns early, because its caller has gone away, shares no
// memory with the function passed to Inspect. Only the race detector can detect a violation.
func TestLateLook(t *testing.T) {
	n := &lateNode{fakeNode: newNode()}
	s := service(n, Options{})
	grant(t, service(n.fakeNode, Options{}), &pb.GrantRequest{Id: 7, TtlMs: 5000, Name: "n"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ask := range map[string]func() (proto.Message, error){
		"describe": func() (proto.Message, error) {
			return s.Describe(ctx, &pb.DescribeRequest{Id: 7, Keys: true})
		},
		"describe by name": func() (proto.Message, error) {
			return s.Describe(ctx, &pb.DescribeRequest{Name: "n"})
		},
		"list": func() (proto.Message, error) { return s.List(ctx, &pb.ListRequest{}) },
		"check a token": func() (proto.Message, error) {
			return s.CheckToken(ctx, &pb.CheckTokenRequest{Name: "n", Token: 1})
		},
		"renew by name": func() (proto.Message, error) {
			return s.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{{Name: "n", Token: 1}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer n.looks.Wait()
			if m, err := ask(); !errors.Is(err, context.Canceled) {
				t.Errorf("%v, %v", m, err)
			}
		})
	}
}
