package etcd

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/fsm"
)

// loginAs is an Identity that has just logged in.
type loginAs struct {
	node Reader
	user string
}

func (l loginAs) Caller() access.Caller {
	return access.Caller{User: l.user, Revision: l.node.View().Access.Revision()}
}

// trusting are options of a server that believes the header "as".
func trusting(n *fakeNode) Options {
	who := func(ctx context.Context) context.Context {
		if v := metadata.ValueFromIncomingContext(ctx, "as"); len(v) > 0 {
			return api.WithIdentity(ctx, loginAs{n, v[0]})
		}
		return ctx
	}
	return Options{
		Unary: []grpc.UnaryServerInterceptor{func(
			ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (any, error) {
			return next(who(ctx), r)
		}},
		Stream: []grpc.StreamServerInterceptor{func(
			srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
		) error {
			return next(srv, &guardedStream{ServerStream: s, ctx: who(s.Context())})
		}},
	}
}

// as returns a context of calls by a user, or by nobody.
func as(t testing.TB, user string) context.Context {
	if user == "" {
		return ctx10(t)
	}
	return metadata.AppendToOutgoingContext(ctx10(t), "as", user)
}

// do gives a command as root.
func (n *fakeNode) do(t testing.TB, c fsm.Command) {
	t.Helper()
	r, err := n.Propose(api.WithIdentity(t.Context(), loginAs{n, access.Root}), c)
	if errors.Join(err, r.Err) != nil {
		t.Fatal(err, r.Err)
	}
}

// newTenants returns a node with access control: alice may read and write what begins with "a".
// There is a lease 1 of hers, and a lease 2 with a key of another.
func newTenants(t testing.TB) *fakeNode {
	t.Helper()
	n := newNode(t)
	n.logIn = func(user, _ string) (string, error) { return "token of " + user, nil }
	n.grant(t, 1, 60_000)
	n.grant(t, 2, 60_000)
	for _, c := range []fsm.Command{
		&fsm.Put{Key: "a", Lease: 1}, &fsm.Put{Key: "c", Lease: 2}, &fsm.Put{Key: "c2", Lease: 2},
		&fsm.UserAdd{Name: "root"}, &fsm.UserGrantRole{User: "root", Role: "root"},
		&fsm.UserAdd{Name: "alice"}, &fsm.RoleAdd{Name: "a"}, &fsm.RoleAdd{Name: "other"},
		&fsm.RoleGrant{Role: "a", Permission: access.Permission{
			Kind: access.ReadWrite, Key: "a", End: "b",
		}},
		// One place in a queue, and not the others'.
		&fsm.RoleGrant{Role: "a", Permission: access.Permission{Kind: access.ReadWrite, Key: "q/1"}},
		&fsm.UserGrantRole{User: "alice", Role: "a"}, &fsm.AuthEnable{},
	} {
		n.do(t, c)
	}
	return n
}

// The callers that may make each call.
const (
	anybody  = iota
	everyone // who has logged in
	rootOnly
)

type unaryCase struct {
	method string
	req    proto.Message
	who    int
}

func unaryCases() []unaryCase {
	op := func(r *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: []byte("c")},
	}}
	lockOf := func(name string) *v3lockpb.LockRequest {
		return &v3lockpb.LockRequest{Name: []byte(name), Lease: 1}
	}
	c := []byte("c")
	const kv, le, ma, cl, au = "etcdserverpb.KV/", "etcdserverpb.Lease/",
		"etcdserverpb.Maintenance/", "etcdserverpb.Cluster/", "etcdserverpb.Auth/"
	const lock, election = "v3lockpb.Lock/", "v3electionpb.Election/"
	return []unaryCase{
		{kv + "Range", &pb.RangeRequest{Key: []byte("a")}, everyone},
		{kv + "Range", &pb.RangeRequest{Key: c}, rootOnly},
		{kv + "Range", &pb.RangeRequest{Key: c, Serializable: true, CountOnly: true}, rootOnly},
		{kv + "Range", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}, rootOnly},
		{kv + "Put", &pb.PutRequest{Key: []byte("a")}, everyone},
		{kv + "Put", &pb.PutRequest{Key: []byte("a"), Lease: 2}, rootOnly},
		{kv + "Put", &pb.PutRequest{Key: c, PrevKv: true}, rootOnly},
		{kv + "DeleteRange", &pb.DeleteRangeRequest{Key: []byte("ax")}, everyone},
		{kv + "DeleteRange", &pb.DeleteRangeRequest{Key: c, RangeEnd: c, PrevKv: true}, rootOnly},
		{kv + "Txn", &pb.TxnRequest{}, everyone},
		{kv + "Txn", &pb.TxnRequest{Failure: []*pb.RequestOp{get}}, rootOnly},
		{kv + "Txn", &pb.TxnRequest{Compare: []*pb.Compare{{Key: c}}}, rootOnly},
		{kv + "Txn", &pb.TxnRequest{Failure: []*pb.RequestOp{
			op(&pb.TxnRequest{Failure: []*pb.RequestOp{get}}),
		}}, rootOnly},
		{kv + "Compact", &pb.CompactionRequest{Revision: 1}, rootOnly},
		{le + "LeaseGrant", &pb.LeaseGrantRequest{TTL: 60}, everyone},
		{le + "LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true}, everyone},
		{le + "LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 2}, everyone},
		{le + "LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 2, Keys: true}, rootOnly},
		{le + "LeaseLeases", &pb.LeaseLeasesRequest{}, rootOnly},
		{le + "LeaseRevoke", &pb.LeaseRevokeRequest{ID: 77}, everyone},
		{le + "LeaseRevoke", &pb.LeaseRevokeRequest{ID: 2}, rootOnly},
		{ma + "Alarm", &pb.AlarmRequest{}, everyone},
		{ma + "Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE}, rootOnly},
		{ma + "Alarm", &pb.AlarmRequest{
			Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE,
		}, rootOnly},
		{ma + "Status", &pb.StatusRequest{}, everyone},
		{ma + "Defragment", &pb.DefragmentRequest{}, rootOnly},
		{ma + "Hash", &pb.HashRequest{}, rootOnly},
		{ma + "HashKV", &pb.HashKVRequest{}, rootOnly},
		{ma + "MoveLeader", &pb.MoveLeaderRequest{}, rootOnly},
		{ma + "Downgrade", &pb.DowngradeRequest{Version: "0.1"}, rootOnly},
		{cl + "MemberList", &pb.MemberListRequest{}, everyone},
		{cl + "MemberAdd", &pb.MemberAddRequest{}, rootOnly},
		{cl + "MemberAdd", &pb.MemberAddRequest{PeerURLs: []string{"http://x:1"}}, rootOnly},
		{cl + "MemberRemove", &pb.MemberRemoveRequest{ID: 7}, rootOnly},
		{cl + "MemberUpdate", &pb.MemberUpdateRequest{ID: 7}, rootOnly},
		{cl + "MemberPromote", &pb.MemberPromoteRequest{ID: 7}, rootOnly},
		{au + "AuthStatus", &pb.AuthStatusRequest{}, anybody},
		{au + "Authenticate", &pb.AuthenticateRequest{Name: "x"}, anybody},
		{au + "AuthEnable", &pb.AuthEnableRequest{}, rootOnly},
		{au + "UserAdd", &pb.AuthUserAddRequest{Name: "x", Password: "x"}, rootOnly},
		{au + "UserGet", &pb.AuthUserGetRequest{Name: "alice"}, everyone},
		{au + "UserGet", &pb.AuthUserGetRequest{Name: "root"}, rootOnly},
		{au + "UserList", &pb.AuthUserListRequest{}, rootOnly},
		{au + "UserChangePassword", &pb.AuthUserChangePasswordRequest{
			Name: "alice", Password: "x",
		}, rootOnly},
		{au + "UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "x", Role: "a"}, rootOnly},
		{au + "UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: "x", Role: "a"}, rootOnly},
		{au + "RoleAdd", &pb.AuthRoleAddRequest{Name: "x"}, rootOnly},
		{au + "RoleGet", &pb.AuthRoleGetRequest{Role: "a"}, everyone},
		{au + "RoleGet", &pb.AuthRoleGetRequest{Role: "other"}, rootOnly},
		{au + "RoleList", &pb.AuthRoleListRequest{}, rootOnly},
		{au + "RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{
			Name: "x", Perm: &authpb.Permission{Key: c},
		}, rootOnly},
		{au + "RoleRevokePermission", &pb.AuthRoleRevokePermissionRequest{
			Role: "x", Key: c,
		}, rootOnly},
		{au + "RoleDelete", &pb.AuthRoleDeleteRequest{Role: "x"}, rootOnly},
		{au + "UserDelete", &pb.AuthUserDeleteRequest{Name: "x"}, rootOnly},
		{lock + "Lock", lockOf("al"), everyone},
		{lock + "Lock", lockOf("q"), rootOnly}, // before root puts keys of others on the lease
		{lock + "Lock", lockOf("l"), rootOnly},
		{lock + "Unlock", &v3lockpb.UnlockRequest{Key: []byte("ax")}, everyone},
		{lock + "Unlock", &v3lockpb.UnlockRequest{Key: []byte("cx")}, rootOnly},
		{election + "Campaign", &v3electionpb.CampaignRequest{
			Name: []byte("e"), Lease: 1,
		}, rootOnly},
		{election + "Leader", &v3electionpb.LeaderRequest{Name: []byte("ae")}, everyone},
		{election + "Leader", &v3electionpb.LeaderRequest{Name: c}, rootOnly},
		{election + "Proclaim", &v3electionpb.ProclaimRequest{
			Leader: &v3electionpb.LeaderKey{Key: c, Rev: 1},
		}, rootOnly},
		{election + "Resign", &v3electionpb.ResignRequest{
			Leader: &v3electionpb.LeaderKey{Key: c, Rev: 1},
		}, rootOnly},
		{au + "AuthDisable", &pb.AuthDisableRequest{}, rootOnly}, // the last: root ends it
	}
}

func isDenial(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrPermissionDenied) ||
		errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// Goal: each call is for those that it is for. Method: every unary call of all services, several of
// those that name keys, by nobody, by alice and by root; a call that has no row fails the test.
// CVE-2026-33413 of etcd, where Alarm, MemberList, Compact and calls for leases were not decided.
func TestWhoMayCall(t *testing.T) {
	n := newTenants(t)
	c := serve(t, n, trusting(n))
	seen := make(map[string]bool)
	for _, x := range unaryCases() {
		seen[x.method] = true
		for _, user := range []string{"", "alice", "root"} {
			var want error
			switch {
			case user == "" && x.who != anybody:
				want = rpctypes.ErrUserEmpty
			case user == "alice" && x.who == rootOnly:
				want = rpctypes.ErrPermissionDenied
			}
			before := n.View()
			err := c.conn.Invoke(as(t, user), "/"+x.method, x.req, new(pb.ResponseHeader))
			if got := rpctypes.Error(err); want != nil && !errors.Is(got, want) ||
				want == nil && isDenial(err) {
				t.Errorf("%s %v by %q: %v, not %v", x.method, x.req, user, got, want)
			}
			if now := n.View(); want != nil && (now.KV != before.KV || now.Access != before.Access) {
				t.Errorf("%s %v by %q was refused and done", x.method, x.req, user)
			}
		}
	}
	for _, d := range []grpc.ServiceDesc{
		pb.KV_ServiceDesc, pb.Lease_ServiceDesc, pb.Maintenance_ServiceDesc, pb.Cluster_ServiceDesc,
		pb.Auth_ServiceDesc, v3lockpb.Lock_ServiceDesc, v3electionpb.Election_ServiceDesc,
	} {
		for _, m := range d.Methods {
			if !seen[d.ServiceName+"/"+m.MethodName] {
				t.Errorf("%s/%s is in no row", d.ServiceName, m.MethodName)
			}
		}
	}
}

// The streams that answer one request are refused like calls.
func TestWhoMayStream(t *testing.T) {
	n := newTenants(t)
	n.snapshot = []byte("snapshot")
	c := serve(t, n, trusting(n))
	for name, open := range map[string]func(ctx context.Context, key string) (interface {
		RecvMsg(any) error
	}, error){
		"range": func(ctx context.Context, key string) (interface{ RecvMsg(any) error }, error) {
			return c.RangeStream(ctx, &pb.RangeRequest{Key: []byte(key)})
		},
		"observe": func(ctx context.Context, key string) (interface{ RecvMsg(any) error }, error) {
			return c.election.Observe(ctx, &v3electionpb.LeaderRequest{Name: []byte(key)})
		},
		"snapshot": func(ctx context.Context, key string) (interface{ RecvMsg(any) error }, error) {
			return c.Snapshot(ctx, &pb.SnapshotRequest{})
		},
	} {
		for user, want := range map[string]error{
			"": rpctypes.ErrUserEmpty, "alice": rpctypes.ErrPermissionDenied,
		} {
			s, err := open(as(t, user), "c")
			if err != nil {
				t.Fatal(err)
			}
			if got := s.RecvMsg(new(pb.ResponseHeader)); !errors.Is(rpctypes.Error(got), want) {
				t.Errorf("%s by %q: %v", name, user, got)
			}
		}
	}
	if s, err := c.RangeStream(as(t, "alice"), &pb.RangeRequest{Key: []byte("a")}); err != nil {
		t.Error(err)
	} else if _, err := s.Recv(); err != nil {
		t.Errorf("what alice may read: %v", err)
	}
}

// A list of leases is for callers that may read the keys of all.
func TestWhoMayListLeases(t *testing.T) {
	n := newTenants(t)
	c := serve(t, n, trusting(n))
	list := func(user string, want error) {
		t.Helper()
		_, err := c.LeaseLeases(as(t, user), &pb.LeaseLeasesRequest{})
		if !errors.Is(rpctypes.Error(err), want) {
			t.Errorf("%q: %v, not %v", user, err, want)
		}
	}
	list("", rpctypes.ErrUserEmpty)
	list("root", nil)
	list("alice", rpctypes.ErrPermissionDenied)
	n.do(t, &fsm.Revoke{ID: 2})
	list("alice", nil)
}

// A lock that is refused leaves no lease behind.
func TestRefusedLockLeavesNothing(t *testing.T) {
	n := newTenants(t)
	c := serve(t, n, trusting(n))
	before := n.machine.Lessor().Len()
	_, err := c.lock.Lock(as(t, "alice"), &v3lockpb.LockRequest{Name: []byte("c")})
	if !errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied) {
		t.Errorf("refused with %v", err)
	}
	if after := n.machine.Lessor().Len(); after != before {
		t.Errorf("%d leases, and %d before", after, before)
	}
}

// A watch is for callers that may read all that is watched, which is not what the request says if
// it names no key. When the right is taken away the watch ends, with the reason and at once, and
// nothing is told that happened after. CVE-2026-73499 of etcd, where the range of a watch was
// changed before it was decided.
func TestWhoMayWatch(t *testing.T) {
	n := newTenants(t)
	c := serve(t, n, trusting(n))
	stream := func(user string) *watchClient {
		s, err := c.watch.Watch(as(t, user))
		if err != nil {
			t.Fatal(err)
		}
		return &watchClient{t, s}
	}
	for _, x := range []struct {
		user, key, end string
		want           error
	}{
		{"", "a", "", rpctypes.ErrGRPCUserEmpty},
		{"alice", "c", "", rpctypes.ErrGRPCPermissionDenied},
		{"alice", "a", "c", rpctypes.ErrGRPCPermissionDenied},
		{"alice", "", "", rpctypes.ErrGRPCPermissionDenied},
		{"alice", "", "b", rpctypes.ErrGRPCPermissionDenied},
		{"alice", "a", "\x00", rpctypes.ErrGRPCPermissionDenied},
	} {
		w := stream(x.user)
		w.create(&pb.WatchCreateRequest{Key: []byte(x.key), RangeEnd: []byte(x.end)})
		if r := w.recv(); !r.Canceled || !r.Created || r.CancelReason != x.want.Error() {
			t.Errorf("%q to %q by %q: %v", x.key, x.end, x.user, r)
		}
	}
	n.do(t, &fsm.RoleGrant{Role: "a", Permission: access.Permission{Key: "\x00", End: "a"}})
	w := stream("alice")
	w.create(&pb.WatchCreateRequest{RangeEnd: []byte("b")})
	if r := w.recv(); r.Canceled {
		t.Errorf("from the first key there is: %v", r)
	}
	busy, idle, root := stream("alice"), stream("alice"), stream("root")
	for _, w := range []*watchClient{busy, idle, root} {
		w.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("b")})
		w.recv()
	}
	n.do(t, &fsm.Put{Key: "a1"})
	for _, w := range []*watchClient{busy, idle, root} {
		w.events(1)
	}
	n.do(t, &fsm.RoleAdd{Name: "more"}) // another change ends nothing
	n.do(t, &fsm.Put{Key: "a2"})
	busy.events(1)
	idle.events(1)
	n.do(t, &fsm.RoleRevoke{Role: "a", Key: "a", End: "b"})
	for _, w := range []*watchClient{busy, idle} {
		if r := w.recv(); !r.Canceled || r.CancelReason != rpctypes.ErrGRPCPermissionDenied.Error() {
			t.Errorf("after the right was taken away: %v", r)
		}
	}
	n.do(t, &fsm.Put{Key: "a3"})
	if got := root.events(2); len(got) != 2 {
		t.Errorf("root is told %v", got)
	}
}
