package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	native "leasehold.dev/api/leasehold/v1"
)

// records reads an audit log and returns, for each record, the fields that the tests compare.
func records(t *testing.T, file string) (lines []string, text string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var r struct {
			Event, Principal, Address, Call, Target, Outcome string
			Keys                                             []struct{ Key, End any }
			Revision                                         int64
			Name                                             string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.Event == "call" && r.Address != "unix socket" {
			t.Errorf("the address is missing: %s", line)
		}
		short := []string{r.Event, r.Principal, r.Call[strings.LastIndexByte(r.Call, '.')+1:]}
		for _, k := range r.Keys {
			short = append(short, fmt.Sprint(k.Key, "-", cmp.Or(k.End, any(""))))
		}
		lines = append(lines, strings.Join(append(short, r.Target+r.Name, r.Outcome), " "))
	}
	return lines, string(data)
}

// auditedRun runs a member with users and an audit log. It calls do with connections for several
// users and an anonymous caller, and returns the log.
func auditedRun(
	t *testing.T, level string, do func(r *running, conns map[string]*grpc.ClientConn),
) (lines []string, text string) {
	t.Helper()
	c := cheapConfig(shortDir(t))
	c.Access.Audit.File, c.Access.Audit.Level = filepath.Join(c.DataDir, "..", "audit"), level
	r := run(t, c)
	withUsers(t, r)
	conns := map[string]*grpc.ClientConn{}
	for _, user := range []string{"", "root", "alice"} {
		conns[user] = dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	}
	do(r, conns)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	return records(t, c.Access.Audit.File)
}

// has checks how many times the log contains a record.
func has(t *testing.T, lines []string, want string, times int) {
	t.Helper()
	n := len(lines) - len(slices.DeleteFunc(slices.Clone(lines), func(s string) bool {
		return s == want
	}))
	if n != times {
		t.Errorf("%q is %d times in\n%s", want, n, strings.Join(lines, "\n"))
	}
}

// TestAuditLog checks that the log names the principal of every user change, every grant and
// revocation, and every denied call, over every path. The log contains no password, value or
// secret.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	lines, text := auditedRun(t, "changes", func(r *running, conns map[string]*grpc.ClientConn) {
		root, alice := r.token(t, "root"), r.token(t, "alice")
		_, _ = pb.NewAuthClient(conns[""]).Authenticate(t.Context(),
			&pb.AuthenticateRequest{Name: "alice", Password: "wrong-one"})
		_, _ = pb.NewAuthClient(conns[""]).UserAdd(as(t, root),
			&pb.AuthUserAddRequest{Name: "bob", Password: "bobs-password"})
		_, _ = pb.NewAuthClient(conns[""]).UserDelete(as(t, alice),
			&pb.AuthUserDeleteRequest{Name: "bob"})
		for key, token := range map[string]string{"ab": alice, "z": alice, "y": "", "x": "forged"} {
			_ = put(t, conns[""], key, "token", token)
		}
		_ = putJSON(t, r.cfg.URLs.ListenClient[0].Path, nil, "w", "Authorization", alice)
		if s, err := pb.NewMaintenanceClient(conns[""]).Snapshot(as(t, "forged"),
			&pb.SnapshotRequest{}); err == nil {
			_, _ = s.Recv()
		}
		watchKey(as(t, alice), t, conns[""], "v")
		streamAsks(as(t, alice), t, conns[""])
	})
	for want, times := range map[string]int{
		"call alice Auth/Authenticate  denied":         1,
		"call root Auth/UserAdd bob ok":                1,
		"call alice Auth/UserDelete bob denied":        1,
		"call alice KV/Put ab-  ok":                    0, // logged only at level "writes"
		"call alice KV/Put z-  denied":                 1,
		"call  KV/Put y-  denied":                      1,
		"call  KV/Put x-  denied":                      1,
		"call  Maintenance/Snapshot  denied":           1,
		"call alice KV/Put w-  denied":                 1,
		"call alice Watch/Watch v-  denied":            1,
		"call alice StreamService/Open/put a-  ok":     0,
		"call alice StreamService/Open/put u-  denied": 1,
		"call alice StreamService/Open/grant  ok":      1,
		"lease granted alice   ":                       1,
	} {
		has(t, lines, want, times)
	}
	for _, secret := range []string{"wrong-one", "bobs-password", "SECRET"} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

// TestAuditReads checks that level "reads" logs every call with its keys and revisions.
func TestAuditReads(t *testing.T) {
	t.Parallel()
	lines, text := auditedRun(t, "reads", func(r *running, conns map[string]*grpc.ClientConn) {
		ctx := as(t, r.token(t, "alice"))
		_, err := pb.NewKVClient(conns[""]).Txn(ctx, &pb.TxnRequest{
			Success: []*pb.RequestOp{
				{Request: &pb.RequestOp_RequestPut{
					RequestPut: &pb.PutRequest{Key: []byte("a1"), Value: []byte("SECRET")},
				}},
				{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
					Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
						RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a2"), RangeEnd: []byte("a3")},
					}}},
				}}},
			},
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := pb.NewKVClient(conns[""]).Range(ctx,
			&pb.RangeRequest{Key: []byte("a\xff"), RangeEnd: []byte("b")}); err != nil {
			t.Error(err)
		}
		watchKey(ctx, t, conns[""], "ac")
		streamAsks(ctx, t, conns[""])
	})
	for want, times := range map[string]int{
		"call alice KV/Txn a1- a2-a3  ok":          1,
		"call alice Watch/Watch ac-  ok":           1,
		"call alice StreamService/Open/put a-  ok": 1,
	} {
		has(t, lines, want, times)
	}
	for _, part := range []string{
		`{"key":"a2","end":"a3"}],"outcome":"ok","revision":2}`,
		`"keys":[{"key":{"base64":"Yf8=","cut":false},"end":"b"}]`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the log does not have %s:\n%s", part, text)
		}
	}
	if strings.Contains(text, "SECRET") {
		t.Error("the log has a value")
	}
}

// TestAuditTraces checks that a record carries the trace ID of its call over gRPC, streams and
// JSON. Malformed trace headers are ignored.
func TestAuditTraces(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	good := "00-" + trace + "-00f067aa0ba902b7-01"
	_, text := auditedRun(t, "changes", func(r *running, conns map[string]*grpc.ClientConn) {
		for key, header := range map[string]string{
			"good": good, "upper": strings.ToUpper(good), "short": good[:30], "none": trace,
			"later": "cc-" + trace + "-00f067aa0ba902b7-01-more",
			"zero":  "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01",
			"sign":  "00-" + trace[:31] + "!-00f067aa0ba902b7-01",
			"long":  "00-" + trace + "0-00f067aa0ba902b7-01",
		} {
			_ = put(t, conns[""], key, "traceparent", header)
		}
		_ = putJSON(t, r.cfg.URLs.ListenClient[0].Path, nil, "json", "Traceparent", good)
		ctx := as(t, r.token(t, "alice"))
		watchKey(metadata.AppendToOutgoingContext(ctx, "traceparent", good), t, conns[""], "watch")
	})
	for line := range strings.Lines(text) {
		for _, key := range []string{
			"good", "upper", "short", "none", "later", "zero", "sign", "long", "json", "watch",
		} {
			if !strings.Contains(line, `{"key":"`+key+`"`) {
				continue
			}
			has := strings.Contains(line, `"trace":"`+trace+`"`)
			want := key == "good" || key == "later" || key == "json" || key == "watch"
			if has != want || !want && strings.Contains(line, `"trace"`) {
				t.Errorf("%s", line)
			}
		}
	}
	if n := strings.Count(text, trace); n != 4 {
		t.Errorf("%d records have the trace:\n%s", n, text)
	}
}

// as returns a context that sends a token with each call.
func as(t *testing.T, token string) context.Context {
	t.Helper()
	return metadata.AppendToOutgoingContext(t.Context(), "token", token)
}

// watchKey opens a watch on a key and waits for the first response.
func watchKey(ctx context.Context, t *testing.T, conn *grpc.ClientConn, key string) {
	t.Helper()
	w, err := pb.NewWatchClient(conn).Watch(ctx)
	if err == nil {
		err = w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte(key)},
		}})
	}
	if err == nil {
		_, err = w.Recv()
	}
	if err != nil {
		t.Error(err)
	}
}

// streamAsks puts two keys and grants a lease over a leasehold.v1 stream, and waits for the
// responses.
func streamAsks(ctx context.Context, t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	s, err := native.NewStreamServiceClient(conn).Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	put := func(id uint64, key string) *native.Request {
		return &native.Request{Id: id, Body: &native.Request_Put{
			Put: &native.PutRequest{Key: []byte(key), Value: []byte("SECRET")},
		}}
	}
	if err := s.Send(&native.ClientMessage{Requests: []*native.Request{
		put(1, "a"), put(2, "u"), {Id: 3, Body: &native.Request_Grant{
			Grant: &native.GrantRequest{TtlMs: 60_000},
		}},
	}}); err != nil {
		t.Fatal(err)
	}
	for answers := 0; answers < 3; {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		answers += len(m.GetResponses())
	}
}

// TestPanicIsAudited checks that a call that panics is in the audit log, because it may have had an
// effect before.
func TestPanicIsAudited(t *testing.T) {
	lines, text := auditedRun(t, "writes", func(r *running, _ map[string]*grpc.ClientConn) {
		unary, _ := r.interceptors()
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.UnixAddr{Net: "unix"}})
		_, err := unary(ctx, &pb.PutRequest{Key: []byte("k")},
			&grpc.UnaryServerInfo{FullMethod: "/grpc.test/Put"}, // needs no login
			func(context.Context, any) (any, error) { panic("a bug") })
		if status.Code(err) != codes.Internal || r.panics.Ended() != 1 {
			t.Errorf("the call returned %v, %d panics are counted", err, r.panics.Ended())
		}
	})
	if !slices.ContainsFunc(lines, func(s string) bool {
		return strings.HasSuffix(s, "test/Put k-  failed")
	}) {
		t.Errorf("the call is not in\n%s", text)
	}
}
