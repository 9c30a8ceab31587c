package server

import (
	"context"
	"net/url"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/etcd/v3electionpb"
)

// TestInvalidTokenOnStreams checks that an invalid token causes the same error on all calls and
// streams, at a member and through a relay. Clients of etcd log in again on this error (etcd
// #20332).
func TestInvalidTokenOnStreams(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	c := cheapConfig(dir)
	certs := newCertificates(t, "alice")
	c.URLs.ListenClient = append(c.URLs.ListenClient,
		url.URL{Scheme: "unixs", Path: filepath.Join(dir, "t")})
	c.ClientTLS = TLS{CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca}
	r := run(t, c)
	withUsers(t, r)
	withRelay(t, r)
	throughRelay, _ := relayOf(t, r, certs)
	for where, socket := range map[string]string{
		"member": c.URLs.ListenClient[0].Path, "relay": throughRelay,
	} {
		conn := dial(t, socket, nil)
		for name, call := range map[string]func(*grpc.ClientConn) error{
			"put": func(conn *grpc.ClientConn) error { return put(t, conn, "a", "token", "abc.1") },
			"keep-alive": func(conn *grpc.ClientConn) error {
				s, err := etcdserverpb.NewLeaseClient(conn).LeaseKeepAlive(forged(t))
				if err == nil {
					_ = s.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: 5})
					_, err = s.Recv()
				}
				return err
			},
			"observe": func(conn *grpc.ClientConn) error {
				s, err := v3electionpb.NewElectionClient(conn).Observe(forged(t),
					&v3electionpb.LeaderRequest{Name: []byte("a")})
				if err == nil {
					_, err = s.Recv()
				}
				return err
			},
		} {
			if err := rpctypes.Error(call(conn)); err != rpctypes.ErrInvalidAuthToken { //nolint:errorlint
				t.Errorf("%s at the %s: %v", name, where, err)
			}
		}
		w, err := etcdserverpb.NewWatchClient(conn).Watch(forged(t))
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("a")},
		}})
		// clientv3 retries a watch canceled with exactly this text.
		if m, err := w.Recv(); err != nil || !m.Canceled ||
			m.CancelReason != rpctypes.ErrGRPCInvalidAuthToken.Error() {
			t.Errorf("watch at the %s: %v, %v", where, m, err)
		}
		s, err := pb.NewStreamServiceClient(conn).Open(forged(t))
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(&pb.ClientMessage{Requests: []*pb.Request{{
			Id: 1, Body: &pb.Request_Put{Put: &pb.PutRequest{Key: []byte("a")}},
		}}})
		if e, err := firstError(s); e.GetReason() != pb.Reason_REASON_UNAUTHENTICATED &&
			status.Code(err) != status.Code(rpctypes.ErrGRPCInvalidAuthToken) {
			t.Errorf("leasehold.v1's stream at the %s: %v, %v", where, e, err)
		}
		_, err = pb.NewStoreServiceClient(conn).Put(forged(t), &pb.PutRequest{Key: []byte("a")})
		if rpctypes.Error(err) != rpctypes.ErrInvalidAuthToken { //nolint:errorlint
			t.Errorf("leasehold.v1 at the %s: %v", where, err)
		}
	}
}

// forged returns a context with a token that no member issued.
func forged(t testing.TB) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "token", "abc.1")
}

// firstError returns the error in the first response of a stream, or the error that ended the
// stream.
func firstError(s pb.StreamService_OpenClient) (*pb.Error, error) {
	for {
		m, err := s.Recv()
		if err != nil {
			return nil, err
		}
		for _, r := range m.Responses {
			return r.GetError(), nil
		}
	}
}
