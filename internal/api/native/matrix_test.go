package native

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/web"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/wire"
	"leasehold.dev/lease"
	"leasehold.dev/test/nativetest"
)

// secretBytesOf returns the secret of a lease, and secretOf returns its hash.
func secretBytesOf(n byte) []byte           { return bytes.Repeat([]byte{n}, secretBytes) }
func secretOf(n byte) lease.Secret          { return sha256.Sum256(secretBytesOf(n)) }
func lease2() *pb.LeaseRef                  { return &pb.LeaseRef{Id: 2, Token: 2} }
func key(k string) []byte                   { return []byte(k) }
func requestOf(m proto.Message) *pb.Request { return nativetest.OnStream(m) }

// A way sends a request to the member over one of the APIs.
type way func(t *testing.T, n Node, user string, c nativetest.Request) (bool, error)

// byGRPC makes a unary call.
func byGRPC(t *testing.T, n Node, user string, c nativetest.Request) (bool, error) {
	return nativetest.Refused(c.Call(as(t.Context(), user), connected(t, n, Options{})))
}

// byStream makes a request on a stream.
func byStream(t *testing.T, n Node, user string, c nativetest.Request) (bool, error) {
	ctx, cancel := context.WithCancel(as(t.Context(), user))
	defer cancel()
	s, err := pb.NewStreamServiceClient(connected(t, n, Options{})).Open(ctx)
	if err != nil {
		return false, err
	}
	return askOn(s, c)
}

// byDirect makes a request on a stream without HTTP/2.
func byDirect(t *testing.T, n Node, user string, c nativetest.Request) (bool, error) {
	ctx, cancel := context.WithCancel(as(t.Context(), user))
	defer cancel()
	l := bufconn.Listen(1 << 18)
	server := direct.NewServer(direct.Options{
		Credentials: insecure.NewCredentials(), Codec: wire.Codec(), MaxMessage: 1 << 20,
		Patience:     time.Minute,
		Interceptors: []intercept.Stream{streamOf(n)},
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

// askOn sends the first request on a stream.
func askOn(s pb.StreamService_OpenClient, c nativetest.Request) (bool, error) {
	r := requestOf(c.Body)
	r.Id = 1
	return nativetest.Refused(nativetest.Ask(s, &pb.ClientMessage{Requests: []*pb.Request{r}}))
}

// firstWrite cancels a request at the first byte of the response.
type firstWrite struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

// Write implements http.ResponseWriter.
func (w *firstWrite) Write(b []byte) (int, error) {
	w.cancel()
	return w.ResponseRecorder.Write(b)
}

// byGateway makes a JSON call.
func byGateway(t *testing.T, n Node, user string, c nativetest.Request) (bool, error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn := connected(t, n, Options{})
	mux := runtime.NewServeMux(runtime.WithMetadata(
		func(context.Context, *http.Request) metadata.MD { return metadata.Pairs("user", user) },
	))
	if err := web.Transcode(mux, conn, c.Method.ParentFile()); err != nil {
		return false, err
	}
	body, err := protojson.Marshal(c.Body)
	if err != nil {
		return false, err
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, c.Path(), bytes.NewReader(body))
	w := &firstWrite{httptest.NewRecorder(), func() {}}
	if c.Method.IsStreamingServer() {
		w.cancel = cancel
	}
	mux.ServeHTTP(w, r)
	return nativetest.RefusedJSON(w.Code, w.Body.String())
}

// openNode is a node that opens caches immediately.
type openNode struct{ *fakeNode }

// OpenCache implements Node.
func (n openNode) OpenCache(_ replica.OpenCache, to Cache) error {
	to.Opened(1, nil)
	return nil
}

// TestMatrix checks that access control cannot be bypassed (T22). Every request in the descriptors
// is rejected for exactly those principals that lack its declared permissions, through every API. A
// rejected request changes nothing.
func TestMatrix(t *testing.T) {
	ways := map[string]way{
		"gRPC": byGRPC, "gateway": byGateway, "stream": byStream, "direct": byDirect,
	}
	all, err := nativetest.Requests(nativetest.Subject{
		Lease: lease2(), Below: "a/", Secret: secretBytesOf(2),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range all {
		for by, ask := range ways {
			onStream := by == "stream" || by == "direct"
			if onStream && c.Field == nil || !onStream && c.Method == nil {
				continue
			}
			t.Run(name+"/"+by, func(t *testing.T) {
				may, err := c.May()
				if err != nil {
					t.Fatal(err)
				}
				for _, user := range nativetest.Principals {
					n := guarded(t)
					before, leases := n.View(), n.machine.Leases()
					c.Body = proto.Clone(c.Body)
					refused, err := ask(t, openNode{n}, user, c)
					if err != nil {
						t.Errorf("%q: %v", user, err)
						continue
					}
					if want := !slices.Contains(may, user); refused != want {
						t.Errorf("%q: refused %v, want %v", user, refused, want)
					}
					if refused {
						unchanged(t, n, before, leases)
					}
				}
			})
		}
	}
}

// unchanged fails the test if the state has changed.
func unchanged(t *testing.T, n *fakeNode, before *fsm.View, leases lease.View) {
	t.Helper()
	after := n.View()
	if after.KV.Revision() != before.KV.Revision() || after.Access != before.Access {
		t.Error("a refused request changed keys or roles")
	}
	same := func(a, b lease.Info) bool { return a.Token == b.Token && a.TTL == b.TTL }
	got := slices.Collect(n.machine.Leases().All())
	if !slices.EqualFunc(got, slices.Collect(leases.All()), same) {
		t.Errorf("a refused request changed leases: %+v", got)
	}
}
