package native

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// behind is a lagging member that catches up during a confirm round.
type behind struct {
	*fakeNode
	view *fsm.View
}

func (b *behind) View() *fsm.View { return b.view }

func (b *behind) Inspect(ctx context.Context, f func(*lease.Lessor)) error {
	err := b.fakeNode.Inspect(ctx, f)
	if err == nil {
		b.view = b.fakeNode.View()
	}
	return err
}

// ended creates leases, ends each in a different way, and returns references with their tokens.
func ended(t *testing.T, n *fakeNode, s unary) (refs []*pb.LeaseRef) {
	t.Helper()
	for _, owner := range []string{"expires", "is revoked", "is handed over", "is resumed"} {
		g := grant(t, s, &pb.GrantRequest{TtlMs: 5000, Owner: owner, Resumable: true})
		l := &pb.LeaseRef{Id: g.Lease.Id, Token: g.Lease.Token}
		var err error
		switch refs = append(refs, l); owner {
		case "expires":
			n.advance(6000)
			_, err = n.Propose(t.Context(), &fsm.Expire{
				Term: 2, Leases: n.machine.Lessor().Due(10),
			})
		case "is revoked":
			_, err = n.Propose(t.Context(), &fsm.Revoke{ID: lease.ID(l.Id), By: "ann"})
		case "is handed over":
			_, err = s.HandOver(t.Context(), &pb.HandOverRequest{Lease: l, Owner: "next"})
		default:
			_, err = s.Resume(t.Context(), &pb.ResumeRequest{Id: l.Id, Secret: g.Secret})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return refs
}

// TestRenewReturnsCause checks that renewing an ended lease returns how the incarnation with the
// request's token ended. This also holds on a lagging member, and for a lease that has since ended
// again in another way. Without a token, the response has the cause of the most recent end.
func TestRenewReturnsCause(t *testing.T) {
	n := newNode()
	late := &behind{n, n.View()}
	refs := ended(t, n, service(n, Options{}))
	if _, err := n.Propose(t.Context(), &fsm.Revoke{ID: lease.ID(refs[2].Id), By: "bob"}); err != nil {
		t.Fatal(err)
	}
	want := []*pb.RenewResult{
		{Cause: pb.LeaseEvent_KIND_EXPIRED},
		{Cause: pb.LeaseEvent_KIND_REVOKED, By: "ann"},
		{Cause: pb.LeaseEvent_KIND_HANDED_OVER, By: "next"},
		{Cause: pb.LeaseEvent_KIND_RESUMED, By: "is resumed"},
		{Cause: pb.LeaseEvent_KIND_EXPIRED},            // without a token
		{Cause: pb.LeaseEvent_KIND_REVOKED, By: "bob"}, // also without a token; handed over before
		{}, // also without a token; it never existed
		{}, // with the token of another lease
		{}, // with an unknown token
	}
	refs = append(refs,
		&pb.LeaseRef{Id: refs[0].Id}, &pb.LeaseRef{Id: refs[2].Id}, &pb.LeaseRef{Id: 7},
		&pb.LeaseRef{Id: refs[0].Id, Token: refs[1].Token}, &pb.LeaseRef{Id: 7, Token: 77})
	for i, w := range want {
		w.Id, w.Reason = refs[i].Id, pb.Reason_REASON_LEASE_NOT_FOUND
	}
	s := service(late, Options{})
	for range 2 { // the second time from the cache of causes
		resp, err := s.Renew(t.Context(), &pb.RenewRequest{Leases: refs})
		if err != nil {
			t.Fatal(err)
		}
		if w := (&pb.RenewResponse{Header: resp.Header, Results: want}); !proto.Equal(resp, w) {
			t.Errorf("%v, want %v", resp, w)
		}
		if n.fail == nil {
			n.fail = context.Canceled // without a confirm round
		}
	}
}

// TestCausesAreBounded checks that the cause is unknown for leases that ended before the oldest
// retained event. The number of cached causes is limited.
func TestCausesAreBounded(t *testing.T) {
	n := newNode()
	n.machine = fsm.New(fsm.Config{LeaseEvents: 1})
	var c causes
	c.read(n.View().LeaseEvents)
	for token := range lease.Token(maxCauses + 2) {
		c.of[token] = cause{kind: fsm.LeaseRevoked}
	}
	n.machine.Begin(1, 2)
	n.machine.Lessor().Promote(n.now)
	refs := ended(t, n, service(n, Options{}))
	c.read(n.View().LeaseEvents)
	if first, last := c.of[1], c.of[lease.Token(refs[3].Token)]; len(c.of) > 2 || first.kind != 0 ||
		last.kind != fsm.LeaseResumed {
		t.Errorf("%d causes; the first is %v, the last %v", len(c.of), first, last)
	}
}
