package server

import (
	"testing"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"leasehold.dev/test/virtual"
)

// TestOpenStreamsAreBounded checks that the member's memory limits how many streams authenticated
// callers can have open. Streams and calls of other clients keep working once the limit is reached.
func TestOpenStreamsAreBounded(t *testing.T) { virtual.Test(t, testOpenStreamsAreBounded) }

func testOpenStreamsAreBounded(t *testing.T) {
	s, err := New(testConfig(shortDir(t)))
	if err != nil {
		t.Fatal(err)
	}
	s.limits.memory = 1 // so that the lowest bound applies
	r := start(t, s).await(t)
	l, err := r.client.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	keep, err := etcdpb.NewLeaseClient(r.client.ActiveConnection()).LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	renew := func() {
		t.Helper()
		if err := keep.Send(&etcdpb.LeaseKeepAliveRequest{ID: int64(l.ID)}); err != nil {
			t.Fatal(err)
		}
		if m, err := keep.Recv(); err != nil || m.TTL != 60 {
			t.Fatalf("a renewal returns %v, %v", m, err)
		}
	}
	renew()
	conn, err := grpc.NewClient("unix:"+r.cfg.URLs.ListenClient[0].Path, virtual.GRPC(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	watch := func() error {
		w, err := etcdpb.NewWatchClient(conn).Watch(t.Context())
		if err != nil {
			return err
		}
		_ = w.Send(&etcdpb.WatchRequest{RequestUnion: &etcdpb.WatchRequest_CreateRequest{
			CreateRequest: &etcdpb.WatchCreateRequest{Key: []byte("k")},
		}})
		_, err = w.Recv()
		return err
	}
	opened := 0
	const half = 4096 // a single connection can open at most half of all streams
	for ; opened <= half; opened++ {
		if err = watch(); err != nil {
			break
		}
	}
	if opened < half-10 || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%d streams were opened: %v", opened, err)
	}
	renew()
	r.put(t, "k", "v")
	w := r.client.Watch(t.Context(), "k")
	r.put(t, "k", "w")
	if m := <-w; m.Err() != nil || len(m.Events) == 0 {
		t.Errorf("a watch of another client returns %v, %v", m, m.Err())
	}
}
