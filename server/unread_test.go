package server

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/test/virtual"
)

// TestUrgentOvertakesLarge checks that a renewal or an invalidation overtakes a large response on
// the same stream if that response is blocked by flow control.
func TestUrgentOvertakesLarge(t *testing.T) { virtual.Test(t, testUrgentOnesPass) }

func testUrgentOnesPass(t *testing.T) {
	cfg := testConfig(shortDir(t))
	cfg.Lease.MaxCacheTTL = time.Minute
	r := run(t, cfg)
	// By default, gRPC grows the window with the throughput of the connection. A client would then
	// receive all events even if the application reads none of them, and nothing would block.
	conn, err := grpc.NewClient("unix:"+r.cfg.URLs.ListenClient[0].Path, virtual.GRPC(),
		grpc.WithStaticStreamWindowSize(1<<16),
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
		if _, err := watches[i].Recv(); err != nil { // the notice that the watch was created
			t.Fatal(err)
		}
	}
	r.put(t, "k", value)
	// if the test fails, a renewal may never arrive
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	g, err := pb.NewStreamServiceClient(conn).Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &streamTest{running: r, t: t, grpc: g}
	s.send(&pb.Request{Body: &pb.Request_Grant{Grant: &pb.GrantRequest{
		TtlMs: 60_000, Holds: []*pb.KeyRange{{Key: []byte("c")}},
	}}})
	lease := s.next().GetGrant().GetLease()
	ref := &pb.LeaseRef{Id: lease.GetId(), Token: lease.GetToken()}
	ack := &pb.CacheAck{Lease: ref}
	acknowledge := func() { s.send(&pb.Request{Body: &pb.Request_CacheAck{CacheAck: ack}}) }
	s.send(&pb.Request{Body: &pb.Request_Cache{Cache: &pb.CacheRequest{Lease: ref}}})
	ack.OpenTerm = s.next().GetCache().GetTerm()
	acknowledge()
	s.send(&pb.Request{Body: &pb.Request_ReadRange{
		ReadRange: &pb.RangeRequest{Key: []byte("c"), Cache: ref},
	}})
	if term := s.next().GetReadRange().GetCacheTerm(); term != ack.OpenTerm {
		t.Fatalf("read in term %d, the cache is open in %d", term, ack.OpenTerm)
	}
	renew := func() *pb.Request {
		return &pb.Request{Body: &pb.Request_Renew{Renew: &pb.RenewRequest{
			Leases: []*pb.LeaseRef{ref},
		}}}
	}
	large := &pb.Request_ReadRange{ReadRange: &pb.RangeRequest{Key: []byte("k")}}
	for passed := 0; passed < 20; passed++ {
		if passed == 0 {
			s.send(&pb.Request{Body: large}, renew())
		} else {
			s.send(renew())
		}
		for m := s.next(); m.GetRenew() == nil || m.More; m = s.next() {
			if m.GetReadRange() != nil { // the connection's window was not yet used up by events
				passed = 0
				s.send(&pb.Request{Body: large})
			} // otherwise it is part of a split response to a renewal
		}
	}
	put := make(chan error, 1)
	go func() {
		_, err := r.client.Put(ctx, "c", "v")
		put <- err
	}()
	first := s.next()
	// on a slow machine, the large response has been sent by now
	for ; first.GetReadRange() != nil; first = s.next() {
		s.send(&pb.Request{Body: large})
	}
	invalidation := first.GetCache()
	if ack.Term, ack.Seq = invalidation.GetTerm(), invalidation.GetSeq(); len(invalidation.GetDrop()) != 1 {
		t.Fatalf("the cache is told %v", invalidation)
	}
	acknowledge()
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	events := make(chan error)
	// in parallel, because any watch may be the next to receive its event
	for _, w := range watches {
		go func() {
			m, err := w.Recv()
			if err == nil && (len(m.Events) != 1 || len(m.Events[0].Kv.Value) != len(value)) {
				err = fmt.Errorf("%d events", len(m.Events))
			}
			events <- err
		}()
	}
	for range watches {
		if err := <-events; err != nil {
			t.Error(err)
		}
	}
	m := s.next()
	for m.GetReadRange() == nil { // on a slow machine, the cache receives the invalidation again
		m = s.next()
	}
	if kvs := m.GetReadRange().GetKvs(); len(kvs) != 1 || len(kvs[0].GetValue()) != len(value) {
		t.Errorf("the large value is read as %d pairs", len(kvs))
	}
}
