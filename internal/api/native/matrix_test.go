package native

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/web/leaseholdgw"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/wire"
	"leasehold.dev/lease"
)

// secretBytesOf and secretOf are the secret of a lease of these tests, and its hash.
func secretBytesOf(n byte) []byte  { return bytes.Repeat([]byte{n}, secretBytes) }
func secretOf(n byte) lease.Secret { return sha256.Sum256(secretBytesOf(n)) }
func lease2() *pb.LeaseRef         { return &pb.LeaseRef{Id: 2, Token: 2} }
func key(k string) []byte          { return []byte(k) }
func put(k string) *pb.Op {
	return &pb.Op{Op: &pb.Op_Put{Put: &pb.PutRequest{Key: key(k)}}}
}

func requestOf(m proto.Message) *pb.Request {
	r := &pb.Request{}
	setRequest(r, m)
	return r
}

// samples has a request of each kind, about the owner's lease 2, its name "a/2", and the key "a/k".
// A kind of request that is missing fails the test.
func samples() []proto.Message {
	return []proto.Message{
		&pb.GrantRequest{TtlMs: 5000, Name: "a/new"},
		&pb.RenewRequest{Leases: []*pb.LeaseRef{lease2()}},
		&pb.RevokeRequest{Leases: []*pb.LeaseRef{lease2()}},
		&pb.DescribeRequest{Name: "a/2", Keys: true},
		&pb.ListRequest{Keys: true, Ids: []int64{2}},
		&pb.ChangeTTLRequest{Lease: lease2(), TtlMs: 4000},
		&pb.HandOverRequest{Lease: lease2(), Owner: "next"},
		&pb.ResumeRequest{Name: "a/2", Secret: secretBytesOf(2)},
		&pb.AttachRequest{Lease: lease2(), Keys: [][]byte{key("a/k")}},
		&pb.DetachRequest{Keys: [][]byte{key("a/k")}}, &pb.CheckTokenRequest{Name: "a/2", Token: 2},
		&pb.EventsRequest{}, &pb.PutRequest{Key: key("a/k"), PrevKv: true},
		&pb.DeleteRequest{Key: key("a/k"), PrevKv: true},
		&pb.RangeRequest{Key: key("a/"), RangeEnd: key("a0")},
		&pb.TxnRequest{Failure: []*pb.Op{put("a/k")}, Success: []*pb.Op{put("a/k")}},
		&pb.WatchRequest{Key: key("a/"), RangeEnd: key("a0")},
		&pb.SessionRequest{Nonce: 7}, &pb.CacheRequest{Lease: lease2()}, &pb.CacheAck{Lease: lease2()},
		&pb.GrantNamesRequest{Permission: &pb.NamePermission{
			Role: "reader", Kind: pb.NamePermission_KIND_SEE, Name: "a/", Prefix: true,
		}},
		&pb.RevokeNamesRequest{Role: "reader", Name: "a/", Prefix: true}, &pb.ListNamesRequest{},
		&pb.SetLimitsRequest{Limits: &pb.Limits{Role: "reader", Limits: []*pb.Limit{
			{Resource: pb.Limit_RESOURCE_WATCHES, Most: 1000},
		}}},
		&pb.ListLimitsRequest{},
	}
}

// parts is who may do the samples whose parts say what they need.
var parts = map[protoreflect.Name][]string{
	"AttachRequest": {"owner", "root"}, "TxnRequest": {"writer", "bound", "owner", "root"},
}

// sampleOf returns the sample of a kind of request.
func sampleOf(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	for _, m := range samples() {
		if m.ProtoReflect().Descriptor() == d {
			return m
		}
	}
	t.Fatalf("there is no sample of a %s: add one", d.FullName())
	return nil
}

// allowed returns who may do a sample.
func allowed(t *testing.T, d protoreflect.MessageDescriptor, needs pb.Needs) []string {
	t.Helper()
	who, ok := mayBy[needs.String()]
	if needs == pb.Needs_NEEDS_PARTS {
		who, ok = parts[d.Name()]
	}
	if !ok {
		t.Fatalf("nobody has said who may do what %v of %s are for", needs, d.FullName())
	}
	return who
}

// refused reports whether an error, or what an answer says of its leases, is a refusal.
func refusedBy(m proto.Message, err error) (bool, error) {
	code := status.Code(err)
	if code == codes.PermissionDenied || code == codes.Unauthenticated {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	reasons := make(map[pb.Reason]bool)
	switch m := m.(type) {
	case *pb.RenewResponse:
		for _, r := range m.Results {
			reasons[r.Reason] = true
		}
	case *pb.RevokeResponse:
		for _, r := range m.Results {
			reasons[r.Reason] = true
		}
	}
	denied, out := pb.Reason_REASON_PERMISSION_DENIED, pb.Reason_REASON_UNAUTHENTICATED
	return reasons[denied] || reasons[out], nil
}

// A way is how a request comes to the member.
type way func(t *testing.T, n Node, user string, c call1) (bool, error)

// call1 is one request, by the method or the field that it is declared by.
type call1 struct {
	method  protoreflect.MethodDescriptor // nil for a request that only a stream has
	field   protoreflect.FieldDescriptor  // nil for one that no stream has
	request proto.Message
}

// byGRPC makes a call by itself.
func byGRPC(t *testing.T, n Node, user string, c call1) (bool, error) {
	ctx, cancel := context.WithCancel(as(t.Context(), user))
	defer cancel()
	conn := connected(t, n, Options{})
	name := fmt.Sprintf("/%s/%s", c.method.Parent().FullName(), c.method.Name())
	out := newMessage(c.method.Output())
	if !c.method.IsStreamingServer() {
		err := conn.Invoke(ctx, name, c.request, out)
		return refusedBy(out, err)
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, name)
	if err == nil {
		_ = s.SendMsg(c.request) // what is received says why it has ended
		err = s.RecvMsg(out)
	}
	return refusedBy(out, err)
}

// newMessage returns an empty message of the generated type.
func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	for _, m := range answers {
		if m.ProtoReflect().Descriptor() == d {
			return m.ProtoReflect().New().Interface()
		}
	}
	return dynamicpb.NewMessage(d)
}

// answers are those that say for each lease what became of it.
var answers = []proto.Message{&pb.RenewResponse{}, &pb.RevokeResponse{}}

// byStream makes a request of a stream.
func byStream(t *testing.T, n Node, user string, c call1) (bool, error) {
	ctx, cancel := context.WithCancel(as(t.Context(), user))
	defer cancel()
	s, err := pb.NewStreamServiceClient(connected(t, n, Options{})).Open(ctx)
	if err != nil {
		return false, err
	}
	return askOn(s, c)
}

// byDirect makes a request of a stream without HTTP/2.
func byDirect(t *testing.T, n Node, user string, c call1) (bool, error) {
	ctx, cancel := context.WithCancel(as(t.Context(), user))
	defer cancel()
	l := bufconn.Listen(1 << 20)
	server := direct.NewServer(direct.Options{
		Credentials: insecure.NewCredentials(), Codec: wire.Codec(), MaxMessage: 1 << 20,
		Patience:     time.Minute,
		Interceptors: []grpc.StreamServerInterceptor{streamOf(n)},
	})
	Register(server, n, Options{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		_ = l.Close()
		<-served
		server.Stop()
		server.GracefulStop()
	}()
	conn, err := l.Dial()
	if err != nil {
		return false, err
	}
	s, err := direct.Open(ctx, conn, pb.StreamService_Open_FullMethodName, wire.Codec())
	if err != nil {
		return false, err
	}
	return askOn(&grpc.GenericClientStream[pb.ClientMessage, pb.ServerMessage]{ClientStream: s}, c)
}

// askOn makes the first request of a stream.
func askOn(s pb.StreamService_OpenClient, c call1) (bool, error) {
	r := requestOf(c.request)
	r.Id = 1
	// If the stream has ended already, what is received says why.
	_ = s.Send(&pb.ClientMessage{Requests: []*pb.Request{r}})
	for {
		m, err := s.Recv()
		if err != nil {
			return refusedBy(nil, err)
		}
		for _, r := range m.Responses {
			if e := r.GetError(); e != nil {
				return refusedBy(nil, api.MessageError(e))
			}
			body := r.ProtoReflect().WhichOneof(r.ProtoReflect().Descriptor().Oneofs().Get(0))
			if body == nil {
				return false, nil
			}
			return refusedBy(r.ProtoReflect().Get(body).Message().Interface(), nil)
		}
	}
}

// setRequest makes m the body of a request.
func setRequest(r *pb.Request, m proto.Message) {
	fields := r.ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Message() == m.ProtoReflect().Descriptor() {
			r.ProtoReflect().Set(f, protoreflect.ValueOfMessage(m.ProtoReflect()))
		}
	}
}

// firstWrite ends a request when something of the answer is there.
type firstWrite struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

// Write implements http.ResponseWriter.
func (w *firstWrite) Write(b []byte) (int, error) {
	w.cancel()
	return w.ResponseRecorder.Write(b)
}

// byGateway makes a call as JSON.
func byGateway(t *testing.T, n Node, user string, c call1) (bool, error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn := connected(t, n, Options{})
	mux := runtime.NewServeMux(runtime.WithMetadata(
		func(context.Context, *http.Request) metadata.MD { return metadata.Pairs("user", user) },
	))
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		leaseholdgw.RegisterLeaseServiceHandler, leaseholdgw.RegisterStoreServiceHandler,
		leaseholdgw.RegisterAccessServiceHandler,
	} {
		if err := register(ctx, mux, conn); err != nil {
			return false, err
		}
	}
	body, err := protojson.Marshal(c.request)
	if err != nil {
		return false, err
	}
	rule := proto.GetExtension(c.method.Options(), annotations.E_Http).(*annotations.HttpRule)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, rule.GetPost(), bytes.NewReader(body))
	w := &firstWrite{httptest.NewRecorder(), func() {}}
	if c.method.IsStreamingServer() {
		w.cancel = cancel
	}
	mux.ServeHTTP(w, r)
	text := w.Body.String()
	for _, sign := range []string{`"code":7`, `"code":16`, "PERMISSION_DENIED", "UNAUTHENTICATED"} {
		if strings.Contains(strings.ReplaceAll(text, " ", ""), sign) {
			return true, nil
		}
	}
	if w.Code != http.StatusOK {
		return false, fmt.Errorf("%d: %s", w.Code, text)
	}
	return false, nil
}

// openNode is a node that opens caches at once.
type openNode struct{ *fakeNode }

// OpenCache implements Cacher.
func (n openNode) OpenCache(_ replica.OpenCache, to Cache) error {
	to.Opened(1, nil)
	return nil
}

// declared returns all requests of leasehold.v1, with what they need, from the descriptors.
func declared(t *testing.T) map[string]struct {
	call1
	needs pb.Needs
} {
	t.Helper()
	type entry = struct {
		call1
		needs pb.Needs
	}
	all := make(map[string]entry)
	for _, f := range []protoreflect.FileDescriptor{
		pb.File_leasehold_v1_leases_proto, pb.File_leasehold_v1_store_proto,
		pb.File_leasehold_v1_access_proto, pb.File_leasehold_v1_stream_proto,
	} {
		for i := range f.Services().Len() {
			methods := f.Services().Get(i).Methods()
			for j := range methods.Len() {
				m := methods.Get(j)
				if m.IsStreamingClient() {
					continue // its requests are below
				}
				needs := proto.GetExtension(m.Options(), pb.E_CallNeeds).(pb.Needs)
				all[string(m.Input().Name())] = entry{call1{method: m, request: sampleOf(t, m.Input())}, needs}
			}
		}
	}
	fields := new(pb.Request).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Message() == nil || f.Name() == "cache_ack" {
			continue // what has no answer of its own: to cancel, and to acknowledge
		}
		name := string(f.Message().Name())
		e, ok := all[name]
		if !ok {
			e.request = sampleOf(t, f.Message())
			e.needs = proto.GetExtension(f.Options(), pb.E_RequestNeeds).(pb.Needs)
		}
		e.field = f
		all[name] = e
	}
	return all
}

// T22: access control is passed by. Goal: each request is refused to exactly the callers that do
// not have what it declares to need, whichever way it comes, and what was refused has changed
// nothing. Method: all requests of the descriptors, by each principal and each way.
func TestMatrix(t *testing.T) {
	ways := map[string]way{
		"gRPC": byGRPC, "gateway": byGateway, "stream": byStream, "direct": byDirect,
	}
	for name, c := range declared(t) {
		for by, ask := range ways {
			onStream := by == "stream" || by == "direct"
			if onStream && c.field == nil || !onStream && c.method == nil {
				continue
			}
			t.Run(name+"/"+by, func(t *testing.T) {
				may := allowed(t, c.request.ProtoReflect().Descriptor(), c.needs)
				for _, user := range principals {
					n := guarded(t)
					before, leases := n.View(), n.machine.Leases()
					c.request = proto.Clone(c.request)
					refused, err := ask(t, openNode{n}, user, c.call1)
					if err != nil {
						t.Errorf("%q: %v", user, err)
						continue
					}
					if want := !slices.Contains(may, user); refused != want {
						t.Errorf("%q: refused %v, and should be %v", user, refused, want)
					}
					if refused {
						unchanged(t, n, before, leases)
					}
				}
			})
		}
	}
}

// unchanged looks whether the state is as it was.
func unchanged(t *testing.T, n *fakeNode, before *fsm.View, leases lease.View) {
	t.Helper()
	after := n.View()
	if after.KV.Revision() != before.KV.Revision() || after.Access != before.Access {
		t.Error("what was refused has changed keys or roles")
	}
	same := func(a, b lease.Info) bool { return a.Token == b.Token && a.TTL == b.TTL }
	got := slices.Collect(n.machine.Leases().All())
	if !slices.EqualFunc(got, slices.Collect(leases.All()), same) {
		t.Errorf("what was refused has changed leases: %+v", got)
	}
}
