package etcd

import (
	"context"
	"errors"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/watch"
	"leasehold.dev/lease"
)

// withOwned adds three leases to newTenants. Lease 10 belongs to alice. Lease 11 belongs to root
// and has a key that alice is not allowed to read. Lease 12 has the name "n" and no principal.
// Lease 2, whose keys alice is not allowed to read, is revoked.
func withOwned(t testing.TB) *fakeNode {
	t.Helper()
	n := newTenants(t)
	for _, terms := range []lease.Terms{
		{ID: 10, Principal: "alice"}, {ID: 11, Principal: "root"}, {ID: 12, Name: "n"},
	} {
		terms.TTL = 60_000
		n.do(t, &fsm.Grant{Terms: terms})
	}
	n.do(t, &fsm.Put{Key: "c", Lease: 11})
	n.do(t, &fsm.Revoke{ID: 2})
	return n
}

// TestWhoMaySeeLeases checks that etcd's calls, which have only an ID, reveal a lease with a name
// or a user only to callers that are allowed to see it (compare CVE-2023-32082 in etcd, where
// LeaseTimeToLive revealed unreadable keys).
func TestWhoMaySeeLeases(t *testing.T) {
	n := withOwned(t)
	c := serve(t, n, trusting(n))
	wantLeases := func(user string, want ...int64) {
		t.Helper()
		for id := int64(10); id <= 12; id++ {
			for _, keys := range []bool{false, true} {
				_, err := c.LeaseTimeToLive(as(t, user), &pb.LeaseTimeToLiveRequest{ID: id, Keys: keys})
				err = rpctypes.Error(err)
				if slices.Contains(want, id) != (err == nil) ||
					err != nil && !errors.Is(err, rpctypes.ErrPermissionDenied) {
					t.Errorf("lease %d, keys %v, by %q: %v", id, keys, user, err)
				}
			}
		}
		r, err := c.LeaseLeases(as(t, user), &pb.LeaseLeasesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got := []int64{}
		for _, l := range r.Leases {
			if l.ID != 1 { // this lease has no principal, and both users may read its key
				got = append(got, l.ID)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q sees the leases %v, not %v", user, got, want)
		}
	}
	wantLeases("root", 10, 11, 12)
	wantLeases("alice", 10)
	n.do(t, &fsm.RoleGrant{Role: "a", Permission: access.Permission{Kind: access.See, Key: "n"}})
	wantLeases("alice", 10, 12)
	r, err := c.RoleGet(as(t, "alice"), &pb.AuthRoleGetRequest{Role: "a"})
	if err != nil || len(r.Perm) != 2 {
		t.Errorf("etcd's clients see a permission on names: %v, %v", r, err)
	}
	if _, err := c.LeaseTimeToLive(as(t, ""), &pb.LeaseTimeToLiveRequest{ID: 10}); !errors.Is(
		rpctypes.Error(err), rpctypes.ErrUserEmpty) {
		t.Errorf("nobody: %v", err)
	}
}

// TestObserverLosesRight checks that an observer does not see a leader elected after the observer
// lost its permission.
func TestObserverLosesRight(t *testing.T) {
	n := newTenants(t)
	c := serve(t, n, trusting(n))
	n.do(t, &fsm.Put{Key: "ae/1", Value: []byte("first")})
	s, err := c.election.Observe(as(t, "alice"), &v3electionpb.LeaderRequest{Name: []byte("ae")})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Recv(); err != nil || string(r.Kv.Value) != "first" {
		t.Fatalf("%v, %v", r, err)
	}
	n.do(t, &fsm.UserRevokeRole{User: "alice", Role: "a"})
	n.do(t, &fsm.Put{Key: "ae/1", Value: []byte("second")})
	if r, err := s.Recv(); !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		t.Errorf("got %v, %v", r, err)
	}
}

// sentStream records what a watch sends.
type sentStream struct {
	grpc.ServerStream
	ctx  context.Context
	sent []any
}

func (s *sentStream) Context() context.Context        { return s.ctx }
func (s *sentStream) SendMsg(m any) error             { s.sent = append(s.sent, m); return nil }
func (s *sentStream) Send(m *pb.WatchResponse) error  { return s.SendMsg(m) }
func (s *sentStream) Recv() (*pb.WatchRequest, error) { panic("nothing is received") }

// TestWatchRechecksEachBatch checks that events queued behind others are not sent once the
// permission is revoked.
func TestWatchRechecksEachBatch(t *testing.T) {
	n := newTenants(t)
	s := &sentStream{ctx: api.WithIdentity(t.Context(), loginAs{n, "alice"})}
	w := &watchStream{
		service: &watchService{node: n, maxBytes: 1 << 20}, stream: s,
		hub: n.hub.NewStream(), watchers: make(map[int64]*watcher),
	}
	defer w.close()
	x := &watcher{key: "a", end: "b"}
	w.began(&watch.Batch[*api.Event]{Kind: watch.Created, ID: 1, Tag: x})
	batch := &watch.Batch[*api.Event]{Kind: watch.Changed, ID: 1, Tag: x}
	if err := w.answer(batch); err != nil || len(s.sent) != 1 {
		t.Fatalf("before: %v, %v", s.sent, err)
	}
	n.do(t, &fsm.UserRevokeRole{User: "alice", Role: "a"})
	if err := w.answer(batch); err != nil || len(s.sent) != 1 {
		t.Errorf("after: %v, %v", s.sent[1:], err)
	}
}
