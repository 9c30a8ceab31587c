package server

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	native "leasehold.dev/api/leasehold/v1"
)

// recordsWith counts the audit records that contain all the given JSON fields.
func recordsWith(t *testing.T, text, fields string) (n int) {
	t.Helper()
	parse := func(text string) (m map[string]json.RawMessage) {
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return m
	}
	want := parse("{" + fields + "}")
	for line := range strings.Lines(text) {
		got, all := parse(line), true
		for name, value := range want {
			all = all && string(got[name]) == string(value)
		}
		if all {
			n++
		}
	}
	return n
}

// TestAuditOfChanges checks that level "changes" logs every change to users, roles, names, limits,
// members and settings with its principal and target.
func TestAuditOfChanges(t *testing.T) {
	t.Parallel()
	_, text := auditedRun(t, "changes", func(r *running, conns map[string]*grpc.ClientConn) {
		conn := conns[""]
		auth, members := pb.NewAuthClient(conn), pb.NewClusterClient(conn)
		names := native.NewAccessServiceClient(conn)
		root := as(t, r.token(t, "root"))
		ask := func(call func(context.Context) error) {
			t.Helper()
			if err := call(root); err != nil {
				t.Error(err)
			}
		}
		ask(of(auth.UserAdd, &pb.AuthUserAddRequest{Name: "bob", Password: "bob's"}))
		ask(of(auth.UserChangePassword,
			&pb.AuthUserChangePasswordRequest{Name: "bob", Password: "bob's other"}))
		ask(of(auth.RoleAdd, &pb.AuthRoleAddRequest{Name: "r"}))
		ask(of(auth.RoleGrantPermission, &pb.AuthRoleGrantPermissionRequest{
			Name: "r", Perm: &authpb.Permission{
				PermType: authpb.READWRITE, Key: []byte("b"), RangeEnd: []byte("c"),
			},
		}))
		ask(of(auth.UserGrantRole, &pb.AuthUserGrantRoleRequest{User: "bob", Role: "r"}))
		may := &native.NamePermission{
			Role: "r", Name: "jobs/", Prefix: true, Kind: native.NamePermission_KIND_HOLD,
		}
		ask(of(names.GrantNames, &native.GrantNamesRequest{Permission: may}))
		ask(of(names.SetLimits, &native.SetLimitsRequest{Limits: &native.Limits{
			User: "bob", Limits: []*native.Limit{{Resource: native.Limit_RESOURCE_LEASES, Max: 3}},
		}}))
		ask(of(names.RevokeNames, &native.RevokeNamesRequest{Role: "r", Name: "jobs/", Prefix: true}))
		ask(of(auth.UserRevokeRole, &pb.AuthUserRevokeRoleRequest{Name: "bob", Role: "r"}))
		ask(of(auth.RoleRevokePermission, &pb.AuthRoleRevokePermissionRequest{
			Role: "r", Key: []byte("b"), RangeEnd: []byte("c"),
		}))
		ask(of(auth.RoleDelete, &pb.AuthRoleDeleteRequest{Role: "r"}))
		ask(of(auth.UserDelete, &pb.AuthUserDeleteRequest{Name: "bob"}))
		added, err := members.MemberAdd(root, &pb.MemberAddRequest{
			PeerURLs: []string{"unix:///no/such/socket"}, IsLearner: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		ask(of(members.MemberRemove, &pb.MemberRemoveRequest{ID: added.Member.ID}))
		ask(of(pb.NewMaintenanceClient(conn).Alarm, &pb.AlarmRequest{
			Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE,
		}))
		ask(of(auth.AuthDisable, &pb.AuthDisableRequest{}))
	})
	for _, want := range []string{
		`"call":"/etcdserverpb.Auth/UserAdd","target":"bob"`,
		`"call":"/etcdserverpb.Auth/UserChangePassword","target":"bob"`,
		`"call":"/etcdserverpb.Auth/RoleAdd","target":"r"`,
		`"call":"/etcdserverpb.Auth/RoleGrantPermission","target":"r","detail":"READWRITE",` +
			`"keys":[{"key":"b","end":"c"}]`,
		`"call":"/etcdserverpb.Auth/UserGrantRole","target":"bob","detail":"r"`,
		`"call":"/leasehold.v1.AccessService/GrantNames","target":"r",` +
			`"detail":"KIND_HOLD \"jobs/\" prefix true"`,
		`"call":"/leasehold.v1.AccessService/SetLimits","target":"user bob"`,
		`"call":"/leasehold.v1.AccessService/RevokeNames","target":"r"`,
		`"call":"/etcdserverpb.Auth/UserRevokeRole","target":"bob","detail":"r"`,
		`"call":"/etcdserverpb.Auth/RoleRevokePermission","target":"r",` +
			`"keys":[{"key":"b","end":"c"}]`,
		`"call":"/etcdserverpb.Auth/RoleDelete","target":"r"`,
		`"call":"/etcdserverpb.Auth/UserDelete","target":"bob"`,
		`"call":"/etcdserverpb.Cluster/MemberAdd","target":"[unix:///no/such/socket]"`,
		`"call":"/etcdserverpb.Cluster/MemberRemove"`,
		`"call":"/etcdserverpb.Maintenance/Alarm","target":"DEACTIVATE NOSPACE 0"`,
		`"call":"/etcdserverpb.Auth/AuthDisable"`,
	} {
		want = `"event":"call","principal":"root","address":"unix socket","outcome":"ok",` + want
		if n := recordsWith(t, text, want); n != 1 {
			t.Errorf("%d records with %s in\n%s", n, want, text)
		}
	}
}

// of binds a call to its request.
func of[Q, A any](
	call func(context.Context, Q, ...grpc.CallOption) (A, error), q Q,
) func(context.Context) error {
	return func(ctx context.Context) error { _, err := call(ctx, q); return err }
}

// TestAuditOfLeases checks that the audit log records each lease being granted, handed over,
// revoked (and by whom), ended along with its key, and expired.
func TestAuditOfLeases(t *testing.T) {
	t.Parallel()
	_, text := auditedRun(t, "changes", func(r *running, conns map[string]*grpc.ClientConn) {
		leases := native.NewLeaseServiceClient(conns[""])
		alice, root := as(t, r.token(t, "alice")), as(t, r.token(t, "root"))
		grant := func(id int64, q *native.GrantRequest) *native.LeaseRef {
			t.Helper()
			if q.Id = id; q.TtlMs == 0 {
				q.TtlMs = 60_000
			}
			a, err := leases.Grant(alice, q)
			if err != nil {
				t.Fatal(err)
			}
			return &native.LeaseRef{Id: a.Lease.Id, Token: a.Lease.Token}
		}
		revoke := func(ctx context.Context, l *native.LeaseRef) {
			t.Helper()
			if _, err := leases.Revoke(ctx,
				&native.RevokeRequest{Leases: []*native.LeaseRef{l}}); err != nil {
				t.Error(err)
			}
		}
		moved := grant(1, &native.GrantRequest{Owner: "one"})
		if _, err := leases.HandOver(alice,
			&native.HandOverRequest{Lease: moved, Owner: "two"}); err != nil {
			t.Error(err)
		}
		revoke(root, &native.LeaseRef{Id: 1})
		store := native.NewStoreServiceClient(conns[""])
		if _, err := store.Put(alice, &native.PutRequest{Key: []byte("a"), TtlMs: 60_000}); err != nil {
			t.Error(err)
		}
		if _, err := store.Delete(alice, &native.DeleteRequest{Key: []byte("a")}); err != nil {
			t.Error(err)
		}
		grant(4, &native.GrantRequest{TtlMs: 100})
		eventually(t, "the lease expires", func() bool {
			_, err := leases.Describe(alice, &native.DescribeRequest{Id: 4})
			return err != nil
		})
	})
	for _, want := range []string{
		`"event":"lease granted","principal":"alice","owner":"one","lease":"0000000000000001"`,
		`"event":"lease handed over","principal":"alice","owner":"two","lease":"0000000000000001"`,
		`"event":"lease revoked","principal":"alice","lease":"0000000000000001","detail":"root"`,
		`"event":"lease revoked","principal":"alice","detail":"key"`,
		`"event":"lease expired","principal":"alice","lease":"0000000000000004"`,
	} {
		if n := recordsWith(t, text, want); n != 1 {
			t.Errorf("%d records with %s in\n%s", n, want, text)
		}
	}
}
