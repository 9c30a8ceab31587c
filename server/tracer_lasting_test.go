package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/trace/tracetest"
	"leasehold.dev/test/virtual"
)

// asking returns a request that is part of a trace.
func asking(n int, body *pb.Request) *pb.Request {
	body.Traceparent = parentNumber(n, "01")
	return body
}

// Goal: renewals, the creation of a watch and the opening of a cache have spans over leasehold.v1's
// stream, and a write that waits for a cache says for how many, and for whose. Method: a cache that
// acknowledges when the write waits.
func TestTraceOfCaches(t *testing.T) { virtual.Test(t, testTraceOfCaches) }

func testTraceOfCaches(t *testing.T) {
	c := &tracetest.Collector{}
	cfg := traced(t, testConfig(shortDir(t)), c)
	cfg.Lease.MaxCacheTTL = 5 * time.Minute // the lease must outlast a slow machine
	r := run(t, cfg)
	conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	g, err := pb.NewStreamServiceClient(conn).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &streamTest{running: r, t: t, grpc: g}
	s.send(&pb.Request{Body: &pb.Request_Grant{Grant: &pb.GrantRequest{
		TtlMs: 300_000, Holds: []*pb.KeyRange{{Key: []byte("c")}},
	}}})
	lease := s.next().GetGrant().GetLease()
	ref := &pb.LeaseRef{Id: lease.GetId(), Token: lease.GetToken()}
	s.send(asking(1, &pb.Request{Body: &pb.Request_Cache{Cache: &pb.CacheRequest{Lease: ref}}}))
	ack := &pb.CacheAck{Lease: ref, Open: s.next().GetCache().GetTerm()}
	acknowledge := func() { s.send(&pb.Request{Body: &pb.Request_CacheAck{CacheAck: ack}}) }
	acknowledge()
	s.send(asking(2, &pb.Request{Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: []byte("w")}}}))
	if m := s.next(); m.GetWatch() == nil {
		t.Fatalf("%v", m)
	}
	s.call(asking(3, &pb.Request{Body: &pb.Request_Renew{
		Renew: &pb.RenewRequest{Leases: []*pb.LeaseRef{ref}},
	}}))
	s.send(&pb.Request{Body: &pb.Request_ReadRange{
		ReadRange: &pb.RangeRequest{Key: []byte("c"), Cache: ref},
	}})
	if term := s.next().GetReadRange().GetCacheTerm(); term != ack.Open {
		t.Fatalf("read in term %d, the cache is open in %d", term, ack.Open)
	}
	written := make(chan error, 1)
	go func() { written <- put(t, conn, "c", "traceparent", parentNumber(4, "01")) }()
	told := s.next().GetCache()
	// The clock of the core has milliseconds: a wait of none is none.
	wait := r.core.clock.now() + 2
	eventually(t, "time passes", func() bool { return r.core.clock.now() > wait })
	ack.Term, ack.Seq = told.GetTerm(), told.GetSeq()
	acknowledge()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	awaitCalls(t, c, 4, "")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	all := byTrace(t, c)
	const open = "leasehold.v1.StreamService/Open/"
	checkTree(t, all[1], open+"cache")
	checkTree(t, all[2], open+"watch")
	checkTree(t, all[3], open+"renew")
	checkTree(t, all[4], "etcdserverpb.KV/Put",
		"admission", "cache wait", "commit", "log sync", "apply", "answer")
	got := all[4]["cache wait"].Attributes
	if got["leasehold.cache_drops"] != int64(1) ||
		got["leasehold.last_lease"] != fmt.Sprintf("%016x", lease.GetId()) {
		t.Errorf("%v", got)
	}
	if len(all) != 4 {
		t.Errorf("%d traces: %v", len(all), all)
	}
}

// Goal: over etcd's streams the first renewal, and the first creation of a watch, are part of the
// trace that the stream was opened with, and those that follow are not. Method: two of each; of a
// stream of watches the first is refused.
func TestTraceOfEtcdStreams(t *testing.T) { virtual.Test(t, testTraceOfEtcdStreams) }

func testTraceOfEtcdStreams(t *testing.T) {
	c := &tracetest.Collector{}
	r := run(t, traced(t, testConfig(shortDir(t)), c))
	conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	with := func(n int) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "traceparent", parentNumber(n, "01"))
	}
	kept, err := etcdpb.NewLeaseClient(conn).LeaseKeepAlive(with(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := kept.Send(&etcdpb.LeaseKeepAliveRequest{ID: 5}); err != nil {
			t.Fatal(err)
		}
		if m, err := kept.Recv(); err != nil || m.TTL != 0 {
			t.Fatal(m, err)
		}
	}
	for n, ids := range map[int][]int64{2: {1, 2}, 3: {-1, 1}} {
		watched, err := etcdpb.NewWatchClient(conn).Watch(with(n))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if err := watched.Send(&etcdpb.WatchRequest{RequestUnion: &etcdpb.WatchRequest_CreateRequest{
				CreateRequest: &etcdpb.WatchCreateRequest{Key: []byte("k"), WatchId: id},
			}}); err != nil {
				t.Fatal(err)
			}
			if m, err := watched.Recv(); err != nil || !m.Created || m.Canceled != (id < 0) {
				t.Fatal(m, err)
			}
		}
	}
	awaitCalls(t, c, 3, "")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	all := byTrace(t, c)
	const renew, create = "etcdserverpb.Lease/LeaseKeepAlive/renew", "etcdserverpb.Watch/Watch/create"
	checkTree(t, all[1], renew)
	checkTree(t, all[2], create)
	checkTree(t, all[3], create)
	if code := all[1][renew].Attributes["rpc.grpc.status_code"]; code != int64(5) {
		t.Errorf("the code of a lease that is not there is %v", code)
	}
	if len(all) != 3 {
		t.Errorf("%d traces: %v", len(all), all)
	}
}
