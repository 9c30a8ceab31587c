package server

import (
	"bytes"
	"context"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestRenewalsPass: a renewal does not wait behind a large answer of the same stream that waits
// until the client has read others. Method: 40 watches whose large events nobody reads; then one
// message on a stream asks for a large value and renews a lease, and another renews it again.
func TestRenewalsPass(t *testing.T) {
	t.Parallel()
	r := run(t, testConfig(shortDir(t)))
	conn, err := grpc.NewClient("unix:"+r.cfg.URLs.ListenClient[0].Path,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	value := string(bytes.Repeat([]byte{'v'}, 1<<20))
	watches := make([]etcdpb.Watch_WatchClient, 40)
	for i := range watches {
		if watches[i], err = etcdpb.NewWatchClient(conn).Watch(t.Context()); err != nil {
			t.Fatal(err)
		}
		create := &etcdpb.WatchCreateRequest{Key: []byte("k")}
		if err := watches[i].Send(&etcdpb.WatchRequest{
			RequestUnion: &etcdpb.WatchRequest_CreateRequest{CreateRequest: create},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := watches[i].Recv(); err != nil { // that it was created
			t.Fatal(err)
		}
	}
	r.put(t, "k", value)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // a renewal may never come
	defer cancel()
	g, err := pb.NewStreamServiceClient(conn).Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &streamTest{running: r, t: t, grpc: g}
	s.send(&pb.Request{Body: &pb.Request_Grant{Grant: &pb.GrantRequest{TtlMs: 60_000}}})
	lease := s.next().GetGrant().GetLease()
	renew := func() *pb.Request {
		return &pb.Request{Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
			Leases: []*pb.LeaseRef{{Id: lease.GetId(), Token: lease.GetToken()}},
		}}}
	}
	large := &pb.Request_ReadRange{ReadRange: &pb.RangeRequest{Key: []byte("k")}}
	for passed := 0; passed < 20; passed++ {
		if passed == 0 {
			s.send(&pb.Request{Body: large}, renew())
		} else {
			s.send(renew())
		}
		for s.next().GetRenew() == nil { // the events are not all there yet
			passed = 0
			s.send(&pb.Request{Body: large})
		}
	}
	for _, w := range watches {
		if m, err := w.Recv(); err != nil || len(m.Events) != 1 ||
			len(m.Events[0].Kv.Value) != len(value) {
			t.Fatalf("%d events, %v", len(m.GetEvents()), err)
		}
	}
	if n := len(s.next().GetReadRange().GetKvs()[0].GetValue()); n != len(value) {
		t.Errorf("a value of %d bytes", n)
	}
}
