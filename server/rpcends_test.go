package server

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/wire"
	"leasehold.dev/test/virtual"
)

// ways lists the ways to open a stream to a member. Each begin opens a stream and returns once its
// first response has arrived.
var ways = []struct {
	name, method string
	begin        func(context.Context, *testing.T, *running)
}{
	{"watch over gRPC", pb.StoreService_Watch_FullMethodName, beginWatch},
	{"events over gRPC", pb.LeaseService_Events_FullMethodName, beginEvents},
	{
		"watch over JSON", pb.StoreService_Watch_FullMethodName,
		beginJSON("store/watch", `{"key":"aw=="}`),
	},
	{"events over JSON", pb.LeaseService_Events_FullMethodName, beginJSON("leases/events", `{}`)},
	{"stream over gRPC", pb.StreamService_Open_FullMethodName, beginStream},
	{"stream without HTTP/2", pb.StreamService_Open_FullMethodName, beginDirect},
}

// TestStreamEndsInMetrics checks that a stream ended by its client is counted as canceled, like
// etcd's watches. A stream that ends because the member stops is counted as unavailable.
func TestStreamEndsInMetrics(t *testing.T) { virtual.Test(t, testStreamEndsInMetrics) }

func testStreamEndsInMetrics(t *testing.T) {
	r := run(t, testConfig(shortDir(t)))
	for _, way := range ways {
		before := endings(r, way.method)
		ctx, cancel := context.WithCancel(t.Context())
		way.begin(ctx, t, r)
		cancel()
		eventually(t, "the end of a "+way.name,
			func() bool { return endings(r, way.method) != before })
		after := endings(r, way.method)
		before[codes.Canceled]++
		if after != before {
			t.Errorf("%s: ended by code as %v, want %v", way.name, after, before)
		}
	}
	for _, way := range ways {
		way.begin(t.Context(), t, r)
	}
	canceled := map[string]uint64{}
	for _, way := range ways {
		canceled[way.method] = endings(r, way.method)[codes.Canceled]
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for method, n := range canceled {
		if got := endings(r, method); got[codes.Canceled] != n || got[codes.Unavailable] == 0 {
			t.Errorf("%s: ended by code as %v, of which the clients %d", method, got, n)
		}
	}
}

// endings returns the number of ended streams of a method, by code.
func endings(r *running, method string) (n [codes.Unauthenticated + 1]uint64) {
	all, err := r.core.metrics.Registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range all {
		if f.GetName() != "grpc_server_handled_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			of := make(map[string]string)
			for _, l := range m.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			if "/"+of["grpc_service"]+"/"+of["grpc_method"] != method {
				continue
			}
			for code := range n {
				if codes.Code(code).String() == of["grpc_code"] {
					n[code] = uint64(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

func beginWatch(ctx context.Context, t *testing.T, r *running) {
	t.Helper()
	s, err := pb.NewStoreServiceClient(r.client.ActiveConnection()).
		Watch(ctx, &pb.WatchRequest{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	mustReceive(t, s, &pb.WatchResponse{})
}

func beginEvents(ctx context.Context, t *testing.T, r *running) {
	t.Helper()
	s, err := pb.NewLeaseServiceClient(r.client.ActiveConnection()).Events(ctx, &pb.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	mustReceive(t, s, &pb.EventsResponse{})
}

func beginStream(ctx context.Context, t *testing.T, r *running) {
	t.Helper()
	s, err := pb.NewStreamServiceClient(r.client.ActiveConnection()).Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	watchOn(t, s)
}

func beginDirect(ctx context.Context, t *testing.T, r *running) {
	t.Helper()
	c, err := virtual.Dial(t.Context(), "unix", r.cfg.URLs.ListenClient[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := direct.Open(ctx, c, pb.StreamService_Open_FullMethodName, wire.Codec())
	if err != nil {
		t.Fatal(err)
	}
	watchOn(t, s)
}

// watchOn starts a watch on a stream.
func watchOn(t *testing.T, s grpc.ClientStream) {
	t.Helper()
	m := &pb.ClientMessage{Requests: []*pb.Request{{
		Id: 1, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: []byte("k")}},
	}}}
	if err := s.SendMsg(m); err != nil {
		t.Fatal(err)
	}
	mustReceive(t, s, &pb.ServerMessage{})
}

func mustReceive(t *testing.T, s grpc.ClientStream, m any) {
	t.Helper()
	if err := s.RecvMsg(m); err != nil {
		t.Fatal(err)
	}
}

// beginJSON opens a stream over the JSON gateway.
func beginJSON(path, request string) func(context.Context, *testing.T, *running) {
	return func(ctx context.Context, t *testing.T, r *running) {
		t.Helper()
		q, err := http.NewRequestWithContext(
			ctx, http.MethodPost, "http://localhost/v1/"+path, strings.NewReader(request))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		resp, err := webClient(t, r.cfg.URLs.ListenClient[0].Path).Do(q)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if n, err := resp.Body.Read(make([]byte, 1)); n == 0 {
			t.Fatal(resp.Status, err)
		}
	}
}
