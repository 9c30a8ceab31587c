package native

import (
	"context"
	"errors"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// fixedFeed is a feed that always has something ready.
type fixedFeed struct{ list []*pb.Response }

func (*fixedFeed) end(uint64)           {}
func (*fixedFeed) refuse(uint64, error) {}
func (s *fixedFeed) next() *pb.Response {
	if len(s.list) == 0 {
		return nil
	}
	r := s.list[0]
	s.list = s.list[1:]
	return r
}

// TestFeedOfRefusedRequest checks that a feed drops events that are ready to be sent if the
// permission for them is removed. The stream has two watches, and its user loses the permission for
// one of them.
func TestFeedOfRefusedRequest(t *testing.T) {
	n := guarded(t)
	ctx := api.WithIdentity(t.Context(), login{n, "reader"})
	answers := &fixedFeed{[]*pb.Response{{Id: 1, More: true}, {Id: 2, More: true}, {Id: 1, More: true}}}
	s := &stream{
		store: &store{leases: service(n, Options{}).leases}, ctx: ctx, open: make(map[uint64]*request),
	}
	s.feeds.Store(&feeds{guard: newGuard(ctx, n), list: []feed{answers}})
	n.mustDo(t, "root", &fsm.RoleGrant{
		Role: "reader", Permission: access.Permission{Kind: access.Read, Key: "b/k"},
	})
	for i, k := range []string{"a/k", "b/k"} {
		id := uint64(i + 1)
		s.open[id] = &request{id: id, feed: answers}
		need := &api.Need{Reads: []keyrange.Range{{Key: k}}}
		if err := s.feeds.Load().guard.Enter(id, need); err != nil {
			t.Fatal(err)
		}
	}
	n.mustDo(t, "root", &fsm.RoleRevoke{Role: "reader", Key: "a/", End: "a0"})
	m := &pb.ServerMessage{}
	if _, _, err := s.addFromFeeds(m, 0); err != nil {
		t.Fatal(err)
	}
	if len(m.Responses) != 1 || m.Responses[0].Id != 2 {
		t.Errorf("received %v", m.Responses)
	}
}

// TestEventsByTheRolesOfNow checks that an event stream uses the current roles. Its user has lost
// the role that it had at the start. Its new role allows it to see only the second of two new
// leases.
func TestEventsByTheRolesOfNow(t *testing.T) {
	n := guarded(t)
	s, err := serve(t, n, Options{}).Events(as(t.Context(), "reader"), &pb.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil { // the stream has started
		t.Fatal(err)
	}
	n.mustDo(t, "root", &fsm.UserRevokeRole{User: "reader", Role: "reader"})
	n.mustDo(t, "root", &fsm.UserGrantRole{User: "reader", Role: "other"})
	for i, name := range []string{"a/8", "b/9"} {
		n.mustDo(t, "root", &fsm.Grant{Terms: lease.Terms{ID: lease.ID(8 + i), TTL: 5000, Name: name}})
	}
	for received := 0; received == 0; {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.Events {
			if received++; e.Lease.Name != "b/9" {
				t.Errorf("received %s", e.Lease.Name)
			}
		}
	}
}

// changing is a node whose users and roles change during a query to the leader.
type changing struct {
	*fakeNode
	t *testing.T
}

// Inspect implements api.Node.
func (n changing) Inspect(ctx context.Context, f func(*lease.Lessor)) error {
	n.mustDo(n.t, "root", &fsm.UserAdd{Name: "more", NoPassword: true})
	return n.fakeNode.Inspect(ctx, f)
}

// TestRenewalDuringAChange checks that if users or roles change during a renewal, the call returns
// an error, so that its client retries. It must not reject individual leases, because their holder
// would stop using them.
func TestRenewalDuringAChange(t *testing.T) {
	n := guarded(t)
	s := service(n, Options{})
	s.leases.node = changing{n, t}
	ctx := api.WithCaller(t.Context(), access.Caller{
		User: "owner", Revision: n.View().Access.Revision(),
	})
	m, err := s.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{{Id: 2}}})
	if !errors.Is(err, access.ErrOldRevision) {
		t.Errorf("%v, %v", m, err)
	}
}

// TestListAfterPermissionRemoved checks that a list contains only leases that its caller can see
// when it is sent, even if the caller could see more when they were selected.
func TestListAfterPermissionRemoved(t *testing.T) {
	for _, r := range []*pb.ListRequest{{}, {Ids: []int64{1, 2, 3, 4}}} {
		listAfterARightIsTaken(t, r)
	}
}

func listAfterARightIsTaken(t *testing.T, r *pb.ListRequest) {
	t.Helper()
	n := guarded(t)
	ctx := api.WithIdentity(t.Context(), login{n, "reader"})
	list := func() int {
		m, err := service(n, Options{}).List(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return len(m.Leases)
	}
	if got := list(); got != 1 {
		t.Errorf("%d leases, want that of the name a/2", got)
	}
	n.between = func() {
		n.mustDo(t, "root", &fsm.UserRevokeRole{User: "reader", Role: "reader"})
	}
	if got := list(); got != 0 {
		t.Errorf("%d leases are listed for a user that may see none", got)
	}
}

// TestRenewalAfterPermissionRemoved checks that a stream stops renewing a lease once its user is no
// longer allowed to hold the name, regardless of cached permissions.
func TestRenewalAfterPermissionRemoved(t *testing.T) {
	n := guarded(t)
	ctx := api.WithIdentity(t.Context(), login{n, "owner"})
	known := new(renewable)
	renew := func() *pb.RenewResult {
		m, err := service(n, Options{}).renew(ctx, &pb.RenewRequest{
			Leases: []*pb.LeaseRef{lease2()},
		}, known, nil)
		if err != nil {
			t.Fatal(err)
		}
		return m.Results[0]
	}
	for range 2 {
		if r := renew(); r.TtlMs == 0 {
			t.Errorf("before: %v", r)
		}
	}
	n.mustDo(t, "root", &fsm.UserRevokeRole{User: "owner", Role: "owner"})
	if r := renew(); r.Reason != pb.Reason_REASON_PERMISSION_DENIED {
		t.Errorf("after: %v", r)
	}
}

// TestCauseNeedsPermission checks that only callers that could see a lease can see why it ended and
// who ended it.
func TestCauseNeedsPermission(t *testing.T) {
	n := guarded(t)
	n.mustDo(t, "owner", &fsm.Revoke{ID: 1, By: "owner"})
	s := service(n, Options{})
	for user, want := range map[string]pb.LeaseEvent_Kind{
		"owner": pb.LeaseEvent_KIND_REVOKED, "root": pb.LeaseEvent_KIND_REVOKED, "other": 0, "none": 0,
	} {
		ctx := api.WithIdentity(t.Context(), login{n, user})
		m, err := s.Renew(ctx, &pb.RenewRequest{Leases: []*pb.LeaseRef{{Id: 1, Token: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		r := m.Results[0]
		gone := r.Reason == pb.Reason_REASON_LEASE_NOT_FOUND
		if !gone || r.Cause != want || (r.By != "") != (want != 0) {
			t.Errorf("%s receives %v", user, r)
		}
	}
}
