package web

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// fake stands in for a member behind the gateway. It echoes requests in its responses.
type fake struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	ended chan error // how each watch ended
}

var header = &pb.ResponseHeader{ClusterId: 1 << 63, MemberId: 7, Revision: 3, RaftTerm: 2}

// echoed maps a key to the metadata that the fake echoes in place of its usual response.
var echoed = map[string]string{
	"token": "authorization", "visit": "leasehold-visit",
	"parent": "traceparent", "state": "tracestate",
}

func (*fake) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	if name := echoed[string(r.Key)]; name != "" {
		md, _ := metadata.FromIncomingContext(ctx)
		return nil, status.Error(codes.Unauthenticated, strings.Join(md.Get(name), ","))
	}
	return &pb.PutResponse{Header: header, PrevKv: &mvccpb.KeyValue{
		Key: r.Key, Value: r.Value, Lease: r.Lease, ModRevision: 1<<63 - 1,
	}}, nil
}

func (f *fake) Watch(s pb.Watch_WatchServer) error {
	for {
		r, err := s.Recv()
		if err != nil {
			f.ended <- err
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		key := r.GetCreateRequest().GetKey()
		if err := s.Send(&pb.WatchResponse{Header: header, Created: true, Events: []*mvccpb.Event{
			{Kv: &mvccpb.KeyValue{Key: key}},
		}}); err != nil {
			return err
		}
		if string(key) == "fail" {
			return rpctypes.ErrGRPCCompacted
		}
	}
}

func (*fake) LeaseKeepAlive(s pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&pb.LeaseKeepAliveResponse{Header: header, ID: r.ID, TTL: 9}); err != nil {
			return err
		}
	}
}

// state is a member's health as chosen by a test.
type state struct {
	noLeader, learner bool
	alarms            []string
	local, quorum     error // errors of local and quorum reads
	disk              error
}

func (s *state) HasLeader() bool  { return !s.noLeader }
func (s *state) Learner() bool    { return s.learner }
func (s *state) Alarms() []string { return s.alarms }
func (s *state) Disk() error      { return s.disk }

func (s *state) Read(_ context.Context, serializable bool) error {
	if serializable {
		return s.local
	}
	return errors.Join(s.local, s.quorum)
}

// site is a server in front of a fake member.
type site struct {
	url   string
	fake  *fake
	state *state
	stop  context.CancelFunc // cancels the context passed to NewServer
	dial  func(ctx context.Context, network, at string) (net.Conn, error)
}

// start serves New(options) in front of a fake member until the test ends.
func start(t *testing.T, change func(*Options)) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, l, new(net.Dialer).DialContext, change)
}

// startOn is like start, but uses the given listener and dials it with dial.
func startOn(
	t *testing.T, l net.Listener,
	dial func(ctx context.Context, network, at string) (net.Conn, error), change func(*Options),
) *site {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &site{fake: &fake{ended: make(chan error, 8)}, state: &state{}, stop: stop, dial: dial}
	loop, conn, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	gs := grpc.NewServer()
	pb.RegisterKVServer(gs, s.fake)
	pb.RegisterWatchServer(gs, s.fake)
	pb.RegisterLeaseServer(gs, s.fake)
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "leases"}, func() float64 { return 42 }))
	o := Options{
		Health: s.state, Conn: conn, Gatherer: registry, MaxRequestBytes: 1 << 20,
		Versions: func() Versions {
			own := Leasehold{Release: "0.1.0", Cluster: "0.1", Speaks: "0.1"}
			return Versions{"3.7.3", "3.7.0", "0.1.0", own}
		},
	}
	if change != nil {
		change(&o)
	}
	h, err := New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(ctx, h, nil)
	s.url = "http://" + l.Addr().String()
	done := make(chan error, 2)
	go func() { done <- gs.Serve(loop) }()
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		stop()
		if err := srv.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		_ = conn.Close()
		gs.Stop()
		for range cap(done) {
			if err := <-done; err != nil && !errors.Is(err, http.ErrServerClosed) {
				t.Errorf("serve: %v", err)
			}
		}
	})
	return s
}

// answer is a complete response.
type answer struct {
	status int
	kind   string // content type
	body   string
	header http.Header
}

// ask sends a request, with a body if it is not empty.
func (s *site) ask(t *testing.T, method, path, body string, headers ...string) answer {
	t.Helper()
	return ask(t, method, s.url+path, body, headers...)
}

func ask(t *testing.T, method, url, body string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), string(data), resp.Header}
}
