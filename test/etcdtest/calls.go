// Package etcdtest helps tests make every call of the etcd API as an anonymous caller, as alice,
// and as root. It contains the calls and lists which callers may make each of them.
package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api/etcd/v3electionpb"
	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/fsm"
)

// Callers lists the callers that make the calls. "" is anonymous.
var Callers = []string{"", "alice", "root"}

// Keys returns the commands that put the keys used in the calls: a key of alice's on lease 1, and
// other keys on lease 2. The leases must exist and must not have a principal.
func Keys() []fsm.Command {
	return []fsm.Command{
		&fsm.Put{Key: "a", Lease: 1}, &fsm.Put{Key: "c", Lease: 2}, &fsm.Put{Key: "c2", Lease: 2},
	}
}

// Users returns the commands that create the users, without passwords. The user alice may read and
// write keys that begin with "a".
func Users() []fsm.Command {
	return []fsm.Command{
		&fsm.UserAdd{Name: "root"}, &fsm.UserGrantRole{User: "root", Role: "root"},
		&fsm.UserAdd{Name: "alice"}, &fsm.RoleAdd{Name: "a"}, &fsm.RoleAdd{Name: "other"},
		&fsm.RoleGrant{Role: "a", Permission: access.Permission{
			Kind: access.ReadWrite, Key: "a", End: "b",
		}},
		// alice may access only one of the queue's tickets.
		&fsm.RoleGrant{Role: "a", Permission: access.Permission{Kind: access.ReadWrite, Key: "q/1"}},
		&fsm.UserGrantRole{User: "alice", Role: "a"},
	}
}

// Who is the set of callers that may make a call.
type Who int

// The callers that may make a call.
const (
	Anybody  Who = iota
	Everyone     // anyone who is logged in
	RootOnly
)

// Call is a call to a method, which is identified by its full name.
type Call struct {
	Method  string
	Request proto.Message
	Who     Who
}

// The services of the calls.
const (
	kv, le   = "etcdserverpb.KV/", "etcdserverpb.Lease/"
	ma, cl   = "etcdserverpb.Maintenance/", "etcdserverpb.Cluster/"
	au       = "etcdserverpb.Auth/"
	watch    = "etcdserverpb.Watch/Watch"
	lock     = "v3lockpb.Lock/"
	election = "v3electionpb.Election/"
)

// c is a key that alice may not read.
var c = []byte("c")

// Calls returns at least one call for every method. They succeed when made in this order.
func Calls() []Call {
	return slices.Concat(keys(), leases(), members(), auth(), queues())
}

func keys() []Call {
	op := func(r *pb.TxnRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	}
	get := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: []byte("c")},
	}}
	watchOf := func(key string) *pb.WatchRequest {
		return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte(key)},
		}}
	}
	return []Call{
		{kv + "Range", &pb.RangeRequest{Key: []byte("a")}, Everyone},
		{kv + "Range", &pb.RangeRequest{Key: c}, RootOnly},
		{kv + "Range", &pb.RangeRequest{Key: c, Serializable: true, CountOnly: true}, RootOnly},
		{kv + "Range", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}, RootOnly},
		{kv + "RangeStream", &pb.RangeRequest{Key: []byte("a")}, Everyone},
		{kv + "RangeStream", &pb.RangeRequest{Key: c}, RootOnly},
		{watch, watchOf("a"), Everyone},
		{watch, watchOf("c"), RootOnly},
		{kv + "Put", &pb.PutRequest{Key: []byte("a")}, Everyone},
		{kv + "Put", &pb.PutRequest{Key: []byte("a"), Lease: 2}, RootOnly},
		{kv + "Put", &pb.PutRequest{Key: c, PrevKv: true}, RootOnly},
		{kv + "DeleteRange", &pb.DeleteRangeRequest{Key: []byte("ax")}, Everyone},
		{kv + "DeleteRange", &pb.DeleteRangeRequest{Key: c, RangeEnd: c, PrevKv: true}, RootOnly},
		{kv + "Txn", &pb.TxnRequest{}, Everyone},
		{kv + "Txn", &pb.TxnRequest{Failure: []*pb.RequestOp{get}}, RootOnly},
		{kv + "Txn", &pb.TxnRequest{Compare: []*pb.Compare{{Key: c}}}, RootOnly},
		{kv + "Txn", &pb.TxnRequest{Failure: []*pb.RequestOp{
			op(&pb.TxnRequest{Failure: []*pb.RequestOp{get}}),
		}}, RootOnly},
		{kv + "Compact", &pb.CompactionRequest{Revision: 1}, RootOnly},
		{le + "LeaseGrant", &pb.LeaseGrantRequest{TTL: 60}, Everyone},
	}
}

func leases() []Call {
	return []Call{
		{le + "LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 1, Keys: true}, Everyone},
		{le + "LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 2}, Everyone},
		{le + "LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 2, Keys: true}, RootOnly},
		{le + "LeaseLeases", &pb.LeaseLeasesRequest{}, RootOnly},
		{le + "LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 1}, Everyone},
		{le + "LeaseKeepAlive", &pb.LeaseKeepAliveRequest{ID: 2}, RootOnly},
		{le + "LeaseRevoke", &pb.LeaseRevokeRequest{ID: 77}, Everyone},
		{le + "LeaseRevoke", &pb.LeaseRevokeRequest{ID: 2}, RootOnly},
	}
}

func members() []Call {
	return []Call{
		{ma + "Alarm", &pb.AlarmRequest{}, Everyone},
		{ma + "Alarm", &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE}, RootOnly},
		{ma + "Alarm", &pb.AlarmRequest{
			Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE,
		}, RootOnly},
		{ma + "Status", &pb.StatusRequest{}, Everyone},
		{ma + "Defragment", &pb.DefragmentRequest{}, RootOnly},
		{ma + "Hash", &pb.HashRequest{}, RootOnly},
		{ma + "HashKV", &pb.HashKVRequest{}, RootOnly},
		{ma + "Snapshot", &pb.SnapshotRequest{}, RootOnly},
		{ma + "MoveLeader", &pb.MoveLeaderRequest{}, RootOnly},
		{ma + "Downgrade", &pb.DowngradeRequest{Version: "0.1"}, RootOnly},
		{cl + "MemberList", &pb.MemberListRequest{}, Everyone},
		{cl + "MemberAdd", &pb.MemberAddRequest{}, RootOnly},
		{cl + "MemberAdd", &pb.MemberAddRequest{PeerURLs: []string{"http://x:1"}}, RootOnly},
		{cl + "MemberRemove", &pb.MemberRemoveRequest{ID: 7}, RootOnly},
		{cl + "MemberUpdate", &pb.MemberUpdateRequest{ID: 7}, RootOnly},
		{cl + "MemberPromote", &pb.MemberPromoteRequest{ID: 7}, RootOnly},
	}
}

func auth() []Call {
	return []Call{
		{au + "AuthStatus", &pb.AuthStatusRequest{}, Anybody},
		{au + "Authenticate", &pb.AuthenticateRequest{Name: "x"}, Anybody},
		{au + "AuthEnable", &pb.AuthEnableRequest{}, RootOnly},
		{au + "UserAdd", &pb.AuthUserAddRequest{Name: "x", Password: "x"}, RootOnly},
		{au + "UserGet", &pb.AuthUserGetRequest{Name: "alice"}, Everyone},
		{au + "UserGet", &pb.AuthUserGetRequest{Name: "root"}, RootOnly},
		{au + "UserList", &pb.AuthUserListRequest{}, RootOnly},
		{au + "UserChangePassword", &pb.AuthUserChangePasswordRequest{
			Name: "x", Password: "x",
		}, RootOnly},
		{au + "UserGrantRole", &pb.AuthUserGrantRoleRequest{User: "x", Role: "a"}, RootOnly},
		{au + "UserRevokeRole", &pb.AuthUserRevokeRoleRequest{Name: "x", Role: "a"}, RootOnly},
		{au + "RoleAdd", &pb.AuthRoleAddRequest{Name: "x"}, RootOnly},
		{au + "RoleGet", &pb.AuthRoleGetRequest{Role: "a"}, Everyone},
		{au + "RoleGet", &pb.AuthRoleGetRequest{Role: "other"}, RootOnly},
		{au + "RoleList", &pb.AuthRoleListRequest{}, RootOnly},
		{au + "RoleGrantPermission", &pb.AuthRoleGrantPermissionRequest{
			Name: "x", Perm: &authpb.Permission{Key: c},
		}, RootOnly},
		{au + "RoleRevokePermission", &pb.AuthRoleRevokePermissionRequest{
			Role: "x", Key: c,
		}, RootOnly},
		{au + "RoleDelete", &pb.AuthRoleDeleteRequest{Role: "x"}, RootOnly},
		{au + "UserDelete", &pb.AuthUserDeleteRequest{Name: "x"}, RootOnly},
	}
}

func queues() []Call {
	lockOf := func(name string) *v3lockpb.LockRequest {
		return &v3lockpb.LockRequest{Name: []byte(name), Lease: 1}
	}
	return []Call{
		{lock + "Lock", lockOf("al"), Everyone},
		{lock + "Lock", lockOf("q"), RootOnly}, // must come before root attaches keys
		{lock + "Lock", lockOf("l"), RootOnly},
		{lock + "Unlock", &v3lockpb.UnlockRequest{Key: []byte("ax")}, Everyone},
		{lock + "Unlock", &v3lockpb.UnlockRequest{Key: []byte("cx")}, RootOnly},
		{election + "Campaign", &v3electionpb.CampaignRequest{
			Name: []byte("e"), Lease: 1,
		}, RootOnly},
		{election + "Observe", &v3electionpb.LeaderRequest{Name: []byte("e")}, RootOnly},
		{election + "Leader", &v3electionpb.LeaderRequest{Name: []byte("ae")}, Everyone},
		{election + "Leader", &v3electionpb.LeaderRequest{Name: c}, RootOnly},
		{election + "Proclaim", &v3electionpb.ProclaimRequest{
			Leader: &v3electionpb.LeaderKey{Key: c, Rev: 1},
		}, RootOnly},
		{election + "Resign", &v3electionpb.ResignRequest{
			Leader: &v3electionpb.LeaderKey{Key: c, Rev: 1},
		}, RootOnly},
		// must be last, because it disables access control
		{au + "AuthDisable", &pb.AuthDisableRequest{}, RootOnly},
	}
}

// Missing returns the methods for which Calls has no call.
func Missing() []string {
	seen := make(map[string]bool)
	for _, c := range Calls() {
		seen[c.Method] = true
	}
	var out []string
	for _, f := range []protoreflect.FileDescriptor{
		pb.File_rpc_proto, v3lockpb.File_v3lockpb_v3lock_proto,
		v3electionpb.File_v3electionpb_v3election_proto,
	} {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				name := fmt.Sprintf("%s/%s", s.FullName(), s.Methods().Get(j).Name())
				if !seen[name] {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// Do makes the call and returns its error.
func (c Call) Do(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(strings.ReplaceAll(c.Method, "/", ".")))
	if err != nil {
		return err
	}
	m := d.(protoreflect.MethodDescriptor)
	if !m.IsStreamingServer() {
		return rpctypes.Error(conn.Invoke(ctx, "/"+c.Method, c.Request, new(pb.ResponseHeader)))
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{
		ServerStreams: true, ClientStreams: m.IsStreamingClient(),
	}, "/"+c.Method)
	if err != nil {
		return err
	}
	_ = s.SendMsg(c.Request) // ignore the error, because RecvMsg returns the stream's error
	out := new(pb.WatchResponse)
	if err := s.RecvMsg(out); err != nil || !strings.HasSuffix(c.Method, "/Watch") || !out.Canceled {
		return rpctypes.Error(err)
	}
	_, reason, _ := strings.Cut(out.CancelReason, "desc = ")
	return rpctypes.Error(status.Error(codes.PermissionDenied, reason))
}

// Judge returns an error if a call made by the given caller had the wrong outcome.
func (c Call) Judge(by string, got error) error {
	var want error
	switch {
	case by == "" && c.Who != Anybody:
		want = rpctypes.ErrUserEmpty
	case by == "alice" && c.Who == RootOnly:
		want = rpctypes.ErrPermissionDenied
	}
	if want != nil && errors.Is(got, want) || want == nil && !Denied(got) {
		return nil
	}
	return fmt.Errorf("%s %v by %q: %v, not %v", c.Method, c.Request, by, got, want)
}

// Denied reports whether a call was rejected because of its caller.
func Denied(err error) bool {
	return errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrPermissionDenied) ||
		errors.Is(err, rpctypes.ErrAuthOldRevision)
}
